# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The trust on one node: look at everything, change what differs, read it back."""

from __future__ import annotations

import base64
import fcntl
import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Optional

from ..core.checks import OK, PENDING, Check, compare
from ..core.commands import CommandError, Runner, run
from ..core.dataclass import dataclass
from ..core.files import FilePlan, diffs, plan_file, with_header
from . import account as accounts
from . import configs
from .certificates import (
    DAY,
    HOST,
    USER,
    PublicKey,
    Wanted,
    fault,
    parse_certificate,
    parse_public_key,
    public_key_or_none,
)
from .keys import KeyPlan, apply_key, plan_key, standing
from .sshd import UNITS, Settings, Sshd, refusal

CERTIFICATE, AUTHORIZED_KEYS = "certificate", "authorized_keys"
MODES = (CERTIFICATE, AUTHORIZED_KEYS)


class TrustError(Exception):
    """The trust cannot be laid on this node; the text says why and what to do."""


@dataclass(frozen=True)
class Request:
    """What the controller wants of this node."""

    told: Mapping[str, Any]
    """What every node is told, as ssh_authority returns it. Keys are lines `type base64`."""
    user: str
    uid: Optional[int]
    shell: str
    names: Sequence[str] = ()
    issued: Mapping[str, str] = field(default_factory=dict)
    """Digests of the certificates the journal says this node has."""
    certificates: Mapping[str, str] = field(default_factory=dict)
    renew_before_s: int = 0
    now: Optional[int] = None
    """The controller's time, by which expiry is judged. The node's own is checked besides."""


@dataclass
class Outcome:
    changed: bool = False
    diff: list[dict[str, Any]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    public_keys: dict[str, str] = field(default_factory=dict)
    sign: dict[str, str] = field(default_factory=dict)
    """Certificates the controller has to sign before anything else can be done, and why."""
    days_left: dict[str, int] = field(default_factory=dict)


class Node:
    """One run on one node."""

    def __init__(
        self,
        request: Request,
        *,
        check_mode: bool,
        places: Optional[configs.Places] = None,
        runner: Runner = run,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.request = request
        self.told = request.told
        self.by_authority = request.told["mode"] == CERTIFICATE
        self.check_mode = check_mode
        self.places = places or configs.Places()
        self.run = runner
        self.clock = clock
        self.now = int(clock()) if request.now is None else request.now
        self.sshd = Sshd(self.places.sshd_config, runner)
        self.certificate_paths = {
            USER: self.places.user_certificate,
            HOST: self.places.host_certificate,
        }
        self.outcome = Outcome()

    def ensure(self) -> Outcome:
        """Lay the trust, or say which certificates are missing for it.

        One at a time: when ansible-playbook is killed, what it started here goes on to its end.
        """
        if self.check_mode:
            return self._ensure()
        with self.places.lock.open("w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            return self._ensure()

    def _ensure(self) -> Outcome:
        account = self._ensure_account()
        self._ensure_directories()
        settings = self._settings()
        host_key, host_key_line = self._host_key(settings)
        uid, gid = (account.uid, account.gid) if account else (self.request.uid or 0, 0)
        hostname = socket.gethostname()
        pairs = {
            USER: plan_key(
                self.places.user_key, uid, gid, f"{self.request.user}@{hostname}", self.run
            ),
            HOST: plan_key(host_key, 0, 0, f"root@{hostname}", self.run, accounts.key_readers()),
        }
        keys = {kind: self._ensure_key(plan) for kind, plan in pairs.items()}
        self.outcome.public_keys = {kind: key.text for kind, key in keys.items() if key}
        if self.by_authority:
            self.outcome.sign = self._to_sign(keys)
            if self.outcome.sign and not self.check_mode:
                return self.outcome
        self._ensure_authorized_keys(account, settings)
        plans = self._plan_files(host_key_line)
        self.outcome.diff += diffs(plans)
        self.outcome.changed |= any(plan.changed for plan in plans)
        if not self.check_mode:
            self._apply(plans, pairs[HOST].changed)
        self._read_back(plans, keys)
        return self.outcome

    # Account and keys.

    def _ensure_account(self) -> Optional[accounts.Account]:
        user = self.request.user
        steps = accounts.commands(user, self.request.uid, self.request.shell)
        if steps:
            self._note(f"account {user}", "absent\n", "\n".join(map(" ".join, steps)) + "\n")
            if not self.check_mode:
                for step in steps:
                    self.run(step)
        return accounts.find(user)

    def _ensure_key(self, plan: KeyPlan) -> Optional[PublicKey]:
        if plan.changed:
            self.outcome.changed = True
            self.outcome.diff += plan.diffs()
            if not self.check_mode:
                self._sweep()
                return apply_key(plan, self.run)
        return plan.public

    def _ensure_directories(self) -> None:
        """Ours, and writable by root only: sshd refuses lists that others could replace.

        The collection's directory above as well: who can write there replaces what lies in it,
        and every login shell reads the environment of MPI from it.
        """
        for path in self._directories():
            found = standing(path)
            if found not in (None, _root_only()):
                self._note(str(path), f"{found}\n", f"{_root_only()}\n")
            if not self.check_mode and found != _root_only():
                path.mkdir(mode=0o755, parents=True, exist_ok=True)
                os.chown(path, os.getuid(), os.getgid())
                path.chmod(0o755)

    def _directories(self) -> tuple[Path, Path]:
        return self.places.own.parent, self.places.own

    def _sweep(self) -> None:
        """Remove what a killed run left in our directory: everything final has a visible name."""
        for leftover in self.places.own.glob(".*"):
            if leftover.is_dir():
                shutil.rmtree(leftover)
            else:
                leftover.unlink()

    def _note(self, what: str, before: str, after: str) -> None:
        self.outcome.changed = True
        self.outcome.diff.append(
            {"before_header": what, "after_header": what, "before": before, "after": after}
        )

    def _settings(self) -> Settings:
        try:
            return self.sshd.settings(self.request.user)
        except CommandError:
            # A configuration that does not hold may be what is to be repaired; it is tested
            # after the change in any case.
            return Settings({})

    def _host_key(self, settings: Settings) -> tuple[Path, str]:
        """The ed25519 host key in use, and the HostKey line it needs in the drop-in, if any.

        A HostKey line switches sshd's defaults off, so there is one only where the operator has
        some and none of them is of this type.
        """
        places, default = self.places, self.places.host_key
        listed = [Path(value) for value in settings.values.get("hostkey", [])]
        if f"HostKey {default}\n" in (plan_file(places.sshd_drop_in, None).before or ""):
            if not listed:  # sshd refuses its configuration, and says nothing
                return default, str(default)
            if default in listed:
                listed.remove(default)
        if not listed or default in listed:
            return default, ""
        for path in listed:
            public = public_key_or_none(plan_file(Path(f"{path}.pub"), None).before)
            if public is not None and public.type == "ssh-ed25519":
                return path, ""
        return default, str(default)

    # Certificates.

    def _wanted(self, kind: str, key: PublicKey) -> Wanted:
        return Wanted(
            kind=kind,
            digest=self.request.issued.get(kind, ""),
            principals=(self.told["principal"],) if kind == USER else tuple(self.request.names),
            key=key,
            authority=parse_public_key(self.told[f"{kind}_authorities"][0]),
        )

    def _certificate_text(self, kind: str) -> str:
        """The certificate that will be on the node after this call."""
        given = self.request.certificates.get(kind)
        return given or plan_file(self.certificate_paths[kind], None).before or ""

    def _to_sign(self, keys: Mapping[str, Optional[PublicKey]]) -> dict[str, str]:
        found = {}
        for kind, key in keys.items():
            if key is None:
                why = "its key pair is yet to be made"
            elif not self.told["user_authorities"]:
                why = "the authority is yet to be made"
            else:
                why = fault(
                    self._certificate_text(kind),
                    self._wanted(kind, key),
                    self.now,
                    self.request.renew_before_s,
                )
            if why:
                found[kind] = why
                if self.check_mode:
                    path = str(self.certificate_paths[kind])
                    self._note(path, f"{why}\n", "a certificate signed anew\n")
        return found

    # Files.

    def _ensure_authorized_keys(
        self, account: Optional[accounts.Account], settings: Settings
    ) -> None:
        lines = self.told["authorized_keys"].splitlines()
        if account is None:
            return
        path = accounts.authorized_keys_of(account, settings.first("authorizedkeysfile"))
        diff = accounts.ensure_authorized(account, path, lines, write=not self.check_mode)
        if diff:
            self.outcome.changed = True
            self.outcome.diff.append(diff)
            if not self.check_mode and shutil.which("restorecon"):
                self.run(["restorecon", "-R", str(path.parent)], check=False)
        if lines:
            wanted = "every node's key"
            left = accounts.ensure_authorized(account, path, lines, write=False)
            self._check("authorized_keys", wanted, "different" if left else wanted, str(path))

    def _plan_files(self, host_key_line: str) -> list[FilePlan]:
        """Every file, in the order it has to be written: none refers to one that comes later."""
        told, places, by_authority = self.told, self.places, self.by_authority

        def owned(path: Path, text: str, *, secret: bool = False) -> FilePlan:
            return plan_file(path, text if by_authority else None, secret=secret)

        plans = [
            owned(path, self._certificate_text(kind))
            for kind, path in self.certificate_paths.items()
            if not self.outcome.sign
        ]
        if by_authority:
            known = configs.authority_lines(told["host_authorities"], told["patterns"])
        else:
            known = with_header("".join(f"{line}\n" for line in told["known_hosts"].splitlines()))
        krl = base64.b64decode(told["revoked"]).decode("utf-8", "surrogateescape")
        user = self.request.user
        plans += [
            owned(
                places.user_authorities,
                with_header("".join(f"{key}\n" for key in told["user_authorities"])),
            ),
            owned(places.principals, with_header(f"{told['principal']}\n")),
            owned(places.revoked, krl, secret=True),
            plan_file(places.known_hosts, known),
            plan_file(
                places.ssh_drop_in,
                configs.ssh_text(places, user, told["patterns"], revocation=by_authority),
            ),
            self._plan_main(places.ssh_config, places.ssh_drop_in, included=True),
            owned(places.sshd_drop_in, configs.sshd_text(places, user, host_key_line)),
            self._plan_main(places.sshd_config, places.sshd_drop_in, included=by_authority),
        ]
        return plans

    def _plan_main(self, main: Path, drop_in: Path, *, included: bool) -> FilePlan:
        """OpenSSH's own file: untouched but for an Include where the distribution has none."""
        now = plan_file(main, None)
        text = now.before or ""
        try:
            if included:
                wanted = configs.with_include(text, drop_in, main.parent)
            else:
                wanted = configs.without_include(text)
        except ValueError as error:
            raise TrustError(f"{main}: {error}: restore the line or remove both") from error
        uid, gid = now.owner_before or (0, 0)
        mode = 0o644 if now.mode_before is None else now.mode_before
        return plan_file(
            main, wanted if wanted or now.before else None, mode=mode, uid=uid, gid=gid
        )

    def _apply(self, plans: list[FilePlan], host_key_changed: bool) -> None:
        places = self.places
        changed = [plan for plan in plans if plan.changed]
        configuration = [
            plan for plan in changed if plan.path in (places.sshd_drop_in, places.sshd_config)
        ]
        read_at_start = configuration or [
            plan for plan in changed if plan.path == places.host_certificate
        ]
        if changed:
            self._sweep()
        if read_at_start or host_key_changed:
            places.reload_pending.parent.mkdir(parents=True, exist_ok=True)
            places.reload_pending.touch()
        for plan in plans:
            plan.apply()
        if places.reload_pending.exists():
            wrong = self.sshd.fault()
            if wrong:
                for plan in reversed(configuration):
                    _restore(plan)
                places.reload_pending.unlink(missing_ok=True)
                raise TrustError(
                    f"sshd refuses the configuration, which is as it was again: {wrong}\n"
                    "If the file named there is yours, repair it (sshd -t tells when it holds)"
                    " and run again."
                )
            self.sshd.reload()
            places.reload_pending.unlink(missing_ok=True)

    # Reading back.

    def _check(
        self, name: str, wanted: Any, found: Any, subject: str = "", reason: str = ""
    ) -> None:
        self.outcome.checks.append(
            compare(name, wanted, found, subject=subject, check_mode=self.check_mode, reason=reason)
        )

    def _read_back(self, plans: list[FilePlan], keys: Mapping[str, Optional[PublicKey]]) -> None:
        request = self.request
        self.outcome.checks += accounts.checks(request.user, request.uid, self.check_mode)
        for kind, key in keys.items():
            wanted = "ed25519, private to its owner"
            path = self.places.user_key if kind == USER else self.places.host_key
            self._check(f"{kind}_key", wanted, wanted if key else "none", str(path))
        for path in self._directories():
            self._check("directory", _root_only(), standing(path), str(path))
        for plan in plans:
            again = plan_file(plan.path, plan.after, mode=plan.mode, uid=plan.uid, gid=plan.gid)
            found = "different" if again.changed else "as wanted"
            self._check("file", "as wanted", found, str(plan.path))
        if self.by_authority:
            self._read_back_certificates(keys)
        self._read_back_sshd()

    def _read_back_certificates(self, keys: Mapping[str, Optional[PublicKey]]) -> None:
        wanted = f"valid for {self.request.renew_before_s // DAY} days or more"
        for kind, key in keys.items():
            name = f"{kind}_certificate"
            why = self.outcome.sign.get(kind, "")
            if why or key is None:
                status = Check(name, wanted, "none that serves", PENDING, reason=why)
                self.outcome.checks.append(status)
                continue
            text = plan_file(self.certificate_paths[kind], None).before or ""
            # By the node's own clock this time: it is the one sshd and ssh go by.
            why = fault(text, self._wanted(kind, key), int(self.clock()), 0)
            found = parse_certificate(text)
            left = found.days_left(self.now)
            self.outcome.days_left[kind] = left
            told = f"{left} days left, serial {found.serial}, by {found.authority.fingerprint}"
            if why:
                reason = f"{why} by this node's clock, which says {time.ctime(self.clock())}"
                self._check(name, wanted, told, reason=reason)
            else:
                self.outcome.checks.append(Check(name, wanted, told, OK))

    def _read_back_sshd(self) -> None:
        request, places = self.request, self.places
        wrong = self.sshd.fault()
        self._check("sshd_configuration", "valid", wrong or "valid")
        if wrong:
            return
        settings = self.sshd.settings(request.user)
        if self.by_authority:
            for keyword, wanted in (
                ("trustedusercakeys", places.user_authorities),
                ("authorizedprincipalsfile", places.principals),
                ("revokedkeys", places.revoked),
            ):
                self._check(
                    f"sshd_{keyword}",
                    str(wanted),
                    settings.first(keyword),
                    reason=f"another file sets it for {request.user} before {configs.DROP_IN}",
                )
            if not self.outcome.sign:
                self._read_back_presented(settings)
        self._check(
            "sshd_pubkeyauthentication",
            "yes",
            settings.first("pubkeyauthentication"),
            reason=f"sshd's configuration forbids {request.user} to log in with a key",
        )
        account = accounts.find(request.user)
        if account is not None:
            self._check(
                "sshd_admits",
                request.user,
                refusal(settings, request.user, accounts.groups(account)) or request.user,
                reason=f"a rule in sshd's configuration refuses {request.user}: add it there",
            )

    def _read_back_presented(self, settings: Settings) -> None:
        """The certificate on the wire is the one on the disk."""
        wanted = parse_public_key(self._certificate_text(HOST)).text
        found = self.sshd.presented(settings)
        if found != wanted and not self.check_mode:
            # Written by an earlier run that was killed, or sshd is just reading its files.
            self.sshd.reload()
            for _attempt in range(20):
                time.sleep(0.1)
                found = self.sshd.presented(settings)
                if found == wanted:
                    break
        serials = [parse_certificate(line).serial if line else None for line in (wanted, found)]
        unit = "" if found == wanted else self.sshd.running_unit()
        reason = f"sshd has not read its files: systemctl restart {unit}"
        if not unit:
            reason = f"no sshd runs here: systemctl start {UNITS[0]} (or {UNITS[1]})"
        self._check(
            "sshd_presents",
            f"host certificate {serials[0]}",
            f"host certificate {serials[1]}" if found else "no host certificate",
            reason=reason,
        )


def _root_only() -> str:
    """How a directory of ours stands."""
    return f"mode 0755 owner {os.getuid()}:{os.getgid()}"


def _restore(plan: FilePlan) -> None:
    """Put a file back to what it was before the plan was applied."""
    uid, gid = plan.owner_before or (0, 0)
    mode = 0o644 if plan.mode_before is None else plan.mode_before
    plan_file(plan.path, plan.before, mode=mode, uid=uid, gid=gid).apply()
