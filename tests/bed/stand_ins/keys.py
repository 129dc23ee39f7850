# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Keys that sign stand-in repositories, created for one build and deleted with it."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path


def run(*argv: str | Path, cwd: Path | None = None) -> bytes:
    """Run a program of the build. An error includes its output."""
    words = [str(word) for word in argv]
    done = subprocess.run(
        words, cwd=cwd, capture_output=True, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        told = (done.stdout + done.stderr).decode(errors="replace")
        raise RuntimeError(f"{' '.join(words)}: exit status {done.returncode}\n{told}")
    return done.stdout


class Key:
    """A key pair in a separate home of gpg."""

    def __init__(self, home: Path, name: str) -> None:
        self.home, self.name = home, name
        # RSA, which RPM of all these distributions can verify.
        self._gpg("--quick-generate-key", name, "rsa2048", "sign", "never")
        self.public = self._gpg("--armor", "--export", name)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.public).hexdigest()

    def sign(self, file: Path, signature: Path) -> None:
        self._gpg("--yes", "--armor", "--detach-sign", "--output", signature, file)

    def clear_sign(self, file: Path, signed: Path) -> None:
        self._gpg("--yes", "--clearsign", "--output", signed, file)

    def _gpg(self, *words: str | Path) -> bytes:
        return run(
            "gpg", "--homedir", self.home, "--batch", "--quiet", "--no-permission-warning",
            "--passphrase", "", "--pinentry-mode", "loopback", "--local-user", self.name, *words,
        )  # fmt: skip


@contextlib.contextmanager
def home() -> Iterator[Path]:
    """A temporary home of gpg. Its path is short because it holds the agent's sockets."""
    folder = Path(tempfile.mkdtemp(prefix="gpg"))
    try:
        yield folder
    finally:
        with contextlib.suppress(RuntimeError):
            run("gpgconf", "--homedir", folder, "--kill", "gpg-agent")
        shutil.rmtree(folder, ignore_errors=True)
