# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether Secure Boot makes the kernel reject modules that DKMS builds: DKMS signs with a key of
this machine, which must be enrolled at its console."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from .commands import CommandError
from .part import Node

SIGNING_KEYS = ("var/lib/shim-signed/mok/MOK.der", "var/lib/dkms/mok.pub")
"""Keys with which DKMS signs: Ubuntu's, and the DKMS default."""
DKMS_SETTINGS = ("etc/dkms/framework.conf", "etc/dkms/framework.conf.d/*.conf")
"""Files in which a site can configure another key."""
_EFI = "sys/firmware/efi/efivars"
EFI = f"{_EFI}/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
SHIM = f"{_EFI}/MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23"
"""1 if validation is disabled in shim: the kernel then treats Secure Boot as off, in
efi_get_secureboot of drivers/firmware/efi/libstub/secureboot.c."""
# Texts of mokutil (src/mokutil.c of lcp/mokutil: sb_state, test_key, print_skip_message).
ON, OFF = "secureboot enabled", ("secureboot disabled", "validation is disabled in shim")
ENROLLED = re.compile(r"is already (enrolled|in db\b)|trusted keyring")
"""The exit status is no help: some releases return the same one for different texts."""
REQUESTED = "is already in the enrollment request"
_CERTIFICATE = re.compile(r"^\s*mok_certificate\s*=\s*[\"']?/([^\"'\s#]+)", re.MULTILINE)


def refusal(node: Node, root: Path) -> str:
    """Return why this kernel rejects DKMS modules, with the remedies; empty if it accepts them."""
    if not is_on(node, root):
        return ""
    keys = _keys(node)
    how = (
        "dkms generate_mok (Ubuntu: update-secureboot-policy --new-key), then mokutil --import KEY"
    )
    if keys:
        how = f"mokutil --import /{keys[0]}"
    confirm = "reboot, and confirm the key at the console"
    how += f", {confirm}"
    try:
        for name in keys:
            argv = ["mokutil", "--test-key", str(node.path(name))]
            answer = node.look(argv, check=False)
            text = f"{answer.stdout}{answer.stderr}".lower()
            if ENROLLED.search(text):
                return ""
            if REQUESTED in text:
                how = f"/{name} waits for that: {confirm}"
    except CommandError:
        how = "Install the package mokutil, which shows whether it is"
    return (
        "Secure Boot is on, and the kernel refuses modules that DKMS builds unless its key is "
        f"enrolled. {how}; or turn Secure Boot off in the firmware"
    )


def is_on(node: Node, root: Path) -> bool:
    """Ask mokutil, or else read the firmware's and shim's variables."""
    text = ""
    with suppress(CommandError):
        text = node.look(["mokutil", "--sb-state"], check=False).stdout.lower()
    if any(words in text for words in OFF):
        return False
    return ON in text or (_variable(root / EFI) and not _variable(root / SHIM))


def _variable(path: Path) -> bool:
    try:
        return path.read_bytes()[4:5] == b"\1"  # the first four bytes are attributes
    except OSError:
        return False


def _keys(node: Node) -> list[str]:
    """Return the existing DKMS keys, those configured by the site first."""
    settings = [path for name in DKMS_SETTINGS for path in sorted(node.root.glob(name))]
    texts = [node.read(str(path.relative_to(node.root))) or "" for path in settings]
    own = [name for text in texts for name in _CERTIFICATE.findall(text)]
    return [name for name in (*own, *SIGNING_KEYS) if node.path(name).exists()]
