# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The authority of the exporters' certificates, and the password to read them, on the controller
next to the SSH authority. Hosts make their keys; of a request only the public key is used.
"""

from __future__ import annotations

import base64
import ctypes
import ctypes.util
import datetime
import ipaddress
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import kept

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    HAS_CRYPTOGRAPHY = True
    UNREADABLE: tuple[type[Exception], ...] = (
        *(ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature, x509.InvalidVersion),
        *(x509.DuplicateExtension, x509.ExtensionNotFound, x509.UnsupportedGeneralNameType),
    )
    """Errors of a certificate or a request that others made."""
except ImportError:
    HAS_CRYPTOGRAPHY = False

AUTHORITY, PASSWORD = "authority.pem", "password.json"
MOST_BYTES = 16384
"""Of a file, and of a request or certificate from a host."""
DAY = datetime.timedelta(days=1)
AUTHORITY_DAYS, HOST_DAYS, RENEW_DAYS = 3650, 365, 60
_ROUNDS = 10
"""Of bcrypt, as exporter-toolkit's documentation has it."""
_PLAIN = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BCRYPT = b"./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


class PkiError(Exception):
    """The authority or a request cannot be used; the text names it, the cause and the remedy."""


@dataclass(frozen=True)
class Password:
    text: str
    hash: str

    def prove(self, directory: Path) -> None:
        """Raises PkiError if hosts would refuse the password, as one of both was edited."""
        if self.text and hashed(self.text, self.hash) != self.hash:
            raise PkiError(
                f"{directory / PASSWORD}: the hash is of another password: remove the file, and run"
                " the layer on all hosts"
            )


def password(directory: Path, *, write: bool) -> Password:
    """The password and its hash, made once; without `write` and a file, both are empty."""
    path = directory / PASSWORD
    content = _read(path)
    if not content and write:
        text = secrets.token_urlsafe(24)
        kept.make(path, json.dumps({"password": text, "hash": hashed(text)}).encode())
        content = _read(path)
    if not content:
        return Password("", "")
    try:
        known = json.loads(content)
        return Password(str(known["password"]), str(known["hash"]))
    except (ValueError, LookupError, TypeError) as error:
        raise PkiError(f"{path}: damaged ({error!r}): restore it, or remove it") from error


def hashed(text: str, like: str = "") -> str:
    """The hash of a password by bcrypt, of the system's libcrypt; with the salt of another one."""
    salt = base64.b64encode(secrets.token_bytes(16)).rstrip(b"=")
    setting = b"$2b$%02d$" % _ROUNDS + salt.translate(bytes.maketrans(_PLAIN, _BCRYPT))
    if re.fullmatch(r"\$2b\$(0[4-9]|1[0-4])\$[./A-Za-z0-9]{53}", like):
        setting = like.encode()
    try:
        library = ctypes.CDLL(ctypes.util.find_library("crypt") or "libcrypt.so.1")
        library.crypt.restype = ctypes.c_char_p
        found: bytes = library.crypt(text.encode(), setting) or b""
    except (OSError, AttributeError):
        found = b""
    if len(found) != 60 or not found.startswith(setting[:7]):
        raise PkiError(
            "the controller's libcrypt has no bcrypt: install libxcrypt (Debian: libcrypt1), or set"
            " monitoring_tls: false"
        )
    return found.decode()


def _read(path: Path) -> bytes:
    try:
        content = kept.read(path, MOST_BYTES)
    except kept.OpenSecretError as error:
        raise PkiError(str(error)) from error
    if content is None:
        return b""
    if not 0 < len(content) <= MOST_BYTES:
        raise PkiError(f"{path}: {len(content)} bytes: restore it, or remove it")
    return content


class Authority:
    """Key and certificate in one file, which processes therefore make together."""

    def __init__(self, directory: Path, cluster: str, *, write: bool) -> None:
        """Raises PkiError. Without `write` and a file, `pem` is empty, and nothing is signed."""
        if not HAS_CRYPTOGRAPHY:
            raise PkiError(
                "the controller's Python lacks the module cryptography 40 or later:"
                " pip install cryptography, or set monitoring_tls: false"
            )
        path = directory / AUTHORITY
        content = _read(path)
        if not content and write:
            kept.make(path, _made(cluster))
            content = _read(path)
        self.pem = ""
        if not content:
            return
        try:
            key = serialization.load_pem_private_key(content, None)
            if not isinstance(key, ec.EllipticCurvePrivateKey):
                raise ValueError("its key is not on an elliptic curve")
            self._key = key
            self._certificate = x509.load_pem_x509_certificate(content)
            if self._certificate.public_key() != key.public_key():
                raise ValueError("its certificate is of another key")
            begin, end = _times(self._certificate)
            if not begin <= _now() <= end - DAY:
                raise ValueError(f"its certificate is valid from {begin} to {end}, see the clock")
        except UNREADABLE as error:
            raise PkiError(
                f"{path}: damaged ({error}): restore it, or remove it and run the layer on all "
                "hosts"
            ) from error
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    def renewed(self, request: str, certificate: str, names: Sequence[str]) -> str:
        """A new certificate for the host of these names and addresses; empty if its present one is
        good. Raises PkiError for a request that is not one."""
        key = _key_of(request, names[0])
        return "" if self._good(certificate, key, names) else self._signed(key, names)

    def _good(self, certificate: str, key: ec.EllipticCurvePublicKey, names: Sequence[str]) -> bool:
        if not certificate or len(certificate) > MOST_BYTES:
            return False
        try:
            found = x509.load_pem_x509_certificate(certificate.encode())
            found.verify_directly_issued_by(self._certificate)
            alternative = found.extensions.get_extension_for_class(x509.SubjectAlternativeName)
            begin, end = _times(found)
        except UNREADABLE:
            return False
        same = found.public_key() == key and list(alternative.value) == _alternatives(names)
        return same and begin <= _now() < end - RENEW_DAYS * DAY

    def _signed(self, key: ec.EllipticCurvePublicKey, names: Sequence[str]) -> str:
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        made = (
            _builder(names[0], HOST_DAYS)
            .issuer_name(self._certificate.subject)
            .public_key(key)
            .add_extension(x509.SubjectAlternativeName(_alternatives(names)), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage("digital_signature"), critical=True)
            .add_extension(usage, critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM).decode()


def _times(certificate: x509.Certificate) -> tuple[datetime.datetime, datetime.datetime]:
    """Begin and end."""
    if hasattr(certificate, "not_valid_after_utc"):  # since cryptography 42
        return certificate.not_valid_before_utc, certificate.not_valid_after_utc
    utc = datetime.timezone.utc
    begin, end = certificate.not_valid_before, certificate.not_valid_after
    return begin.replace(tzinfo=utc), end.replace(tzinfo=utc)


def _key_of(request: str, host: str) -> ec.EllipticCurvePublicKey:
    """The public key of a request whose sender has the private one."""
    try:
        if len(request) > MOST_BYTES:
            raise ValueError(f"{len(request)} characters")
        found = x509.load_pem_x509_csr(request.encode())
        key = found.public_key()
        if not found.is_signature_valid:
            raise ValueError("its signature is not of its key")
        if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != "secp256r1":
            raise ValueError("its key is not on the curve P-256")
    except UNREADABLE as error:
        raise PkiError(f"{host}: no usable request for a certificate: {error}") from error
    return key


def _made(cluster: str) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(f"{cluster} monitoring", AUTHORITY_DAYS)
    certificate = (
        builder.issuer_name(_name(f"{cluster} monitoring"))
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return secret + certificate.public_bytes(serialization.Encoding.PEM)


def _builder(name: str, days: int) -> x509.CertificateBuilder:
    """Valid from a day ago, as clocks of hosts differ."""
    begin = _now() - DAY
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + days * DAY)
    )


def _usage(*allowed: str) -> x509.KeyUsage:
    """Python 3.13 and later refuse an authority without it."""
    every = (
        *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
        *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
    )
    return x509.KeyUsage(**{name: name in allowed for name in every})


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _alternatives(names: Sequence[str]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)
