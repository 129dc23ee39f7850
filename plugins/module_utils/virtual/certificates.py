# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An authority of one virtual cluster, and TLS certificates of its switches, by openssl."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..core.commands import Runner

DAYS = 365
RENEW_S = 30 * 24 * 3600
"""A certificate with less time left than this is made anew."""
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key."""

    certificate: Path
    key: Path

    @property
    def there(self) -> bool:
        return self.certificate.is_file() and self.key.is_file()


class Authority:
    """Signs for the switches of one cluster, and is trusted for nothing else."""

    def __init__(self, pair: Pair, run: Runner) -> None:
        self.pair = pair
        self._run = run

    def lasts(self) -> bool:
        return self.pair.there and self._lasts(self.pair.certificate)

    def make(self, cluster: str) -> None:
        """A new one: whatever the former signed is not trusted any more."""
        with _replacing(self.pair) as new:
            self._run([
                "openssl", "req", "-x509", "-batch", *KEY, "-days", str(DAYS * 3),
                "-subj", f"/CN=switches of {cluster}",
                "-addext", "basicConstraints=critical,CA:TRUE,pathlen:0",
                "-addext", "keyUsage=critical,keyCertSign",
                "-keyout", str(new.key), "-out", str(new.certificate),
            ])  # fmt: skip

    def signed(self, pair: Pair, name: str, address: str) -> bool:
        """Whether a switch's certificate is there, ours, its own, and lasts."""
        if not pair.there or not self._lasts(pair.certificate):
            return False
        for subject in (["-verify_hostname", name], ["-verify_ip", address]):
            ours = ["openssl", "verify", "-CAfile", str(self.pair.certificate)]
            if self._run([*ours, *subject, str(pair.certificate)], check=False).rc != 0:
                return False
        return True

    def sign(self, pair: Pair, name: str, address: str) -> None:
        with _replacing(pair) as new:
            self._run([
                "openssl", "req", "-x509", "-batch", *KEY, "-days", str(DAYS),
                "-subj", f"/CN={name}",
                "-addext", f"subjectAltName=DNS:{name},IP:{address}",
                "-addext", "basicConstraints=critical,CA:FALSE",
                "-addext", "keyUsage=critical,digitalSignature",
                "-addext", "extendedKeyUsage=serverAuth",
                "-CA", str(self.pair.certificate), "-CAkey", str(self.pair.key),
                "-keyout", str(new.key), "-out", str(new.certificate),
            ])  # fmt: skip

    def _lasts(self, certificate: Path) -> bool:
        asked = ["openssl", "x509", "-noout", "-checkend", str(RENEW_S), "-in", str(certificate)]
        return self._run(asked, check=False).rc == 0


@contextlib.contextmanager
def _replacing(pair: Pair) -> Iterator[Pair]:
    """Where to write a new pair; the old one stays until both halves are there.

    Killed between the two renames, the halves do not match: so the certificate goes first.
    """
    pair.certificate.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=pair.certificate.parent, prefix=".new-") as folder:
        new = Pair(Path(folder) / "certificate", Path(folder) / "key")
        yield new
        new.key.chmod(0o600)
        new.certificate.chmod(0o644)
        pair.certificate.unlink(missing_ok=True)
        new.key.replace(pair.key)
        new.certificate.replace(pair.certificate)
