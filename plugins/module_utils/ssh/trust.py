# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The trust on one node: account and keys first, then certificates and the files of ssh and sshd.

Every setting is in a block that matches only the MPI user and, for ssh, only the cluster's hosts.
All other logins retain the operator's settings.
"""

from __future__ import annotations

import base64
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Optional

from ..core import mounts
from ..core.checks import FAILED, OK, PENDING, Check, compare, not_applicable
from ..core.commands import CommandError
from ..core.engine import Settled, settle
from ..core.files import FilePlan, diff, diffs, plan_file, replace_block
from ..core.locks import alone
from ..core.part import Node, Part, Plan, PlanError, Step, StepError, Verdict
from ..core.waiting import until
from . import account as accounts
from . import authorized, keys, sshd, texts
from .keys import DAY, HOST, KeyPair, digest

HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
SSHD_CONFIG, SSHD_DROP_IN = "/etc/ssh/sshd_config", f"/etc/ssh/sshd_config.d/{keys.DROP_IN}"
SSH_CONFIG, SSH_DROP_IN = "/etc/ssh/ssh_config", f"/etc/ssh/ssh_config.d/{keys.DROP_IN}"
BLOCK = "ssh"
"""Name of the block that adds an Include to a main file."""
LOCK = "run/baremetal-mpi-roce/locks/ssh.lock"
PRESENTED_S = 10.0
"""Seconds given to sshd to reload its files, also on a busy node."""


@dataclass(frozen=True)
class TrustRequest:
    """The desired trust of this node, from the controller."""

    authority: Mapping[str, Any]
    """Result of ssh_authority, the same on every node. Keys are lines `type base64`."""
    user: str
    uid: Optional[int]
    shell: str
    names: Sequence[str] = ()
    """Principals of the host certificate."""
    principal: str = ""
    """Principal of the user certificate."""
    admits: Sequence[str] = ()
    """Principals that may log in here."""
    sources: Sequence[str] = ()
    """Addresses from which its user certificate is valid; empty for any address."""
    issued: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The journal's records of this node's certificates, by kind."""
    certificates: Mapping[str, str] = field(default_factory=dict)
    """Newly signed ones, by kind."""
    port: int = keys.PORT
    strict: Optional[bool] = None
    """Whether key files in the home are ignored; None means only if the home may be shared."""
    authorized_keys: Sequence[str] = ()
    """Keys that may admit the MPI user without a certificate, as lines of authorized_keys."""
    login: str = ""
    """The account from which this run became root."""
    replace_authority: bool = False
    refused_keys: Sequence[str] = ()
    """Public keys of this node from before its revocation, to be replaced."""
    renew_before_s: int = 0
    now: int = 0
    """The controller's time, which decides on renewal. The node's clock is checked as well."""

    def fault(self, kind: str, text: str, key: str, now: int, renew_before_s: int) -> str:
        """Why this certificate must be replaced, as a phrase; empty if it is good."""
        if not text.strip():
            return "there is none"
        record = self.issued.get(kind, {})
        signer = digest(self.authority[f"{kind}_authorities"][0])
        names, sources = ([self.principal], self.sources) if kind == keys.USER else (self.names, [])
        compared = {
            "not the one that was issued last": (digest(text), record.get("digest")),
            "for another key": (key, record.get("key")),
            f"not signed by {self.authority['signs']} {signer}": (
                (self.authority["signs"], signer),
                (record.get("authority"), record.get("signer")),
            ),
            "its names changed": (list(names), list(record.get("principals", []))),
            "its source addresses changed": (list(sources), list(record.get("sources", []))),
        }
        for reason, (desired, actual) in compared.items():
            if desired != actual:
                return reason
        left_s = record["valid_before"] - now
        if left_s <= 0:
            return f"expired {-left_s // DAY} days ago"
        if now < record["valid_after"]:
            return "not valid yet"
        return f"expires in {left_s // DAY} days" if left_s < renew_before_s else ""


def converge(request: TrustRequest, node: Node) -> Settled:
    """Configure the trust, or report the certificates that are missing (`sign`).

    A lock permits only one run at a time, as modules of a killed ansible-playbook continue to run
    here.
    """
    if node.check_mode:
        return _converge(request, node)
    with alone(node.path(LOCK)):
        return _converge(request, node)


def _converge(request: TrustRequest, node: Node) -> Settled:
    _keep_authority(request, node)
    refusal = keys.refused_by_fips(node)
    if refusal:
        raise PlanError(refusal)
    daemon = sshd.Sshd(node.path(SSHD_CONFIG), node.run)
    try:
        settings = daemon.settings(request.user, port=request.port)
    except CommandError:
        # The configuration is invalid, which this change may fix; it is tested afterwards.
        settings = sshd.SshdSettings()
    host_key, host_key_line = _host_key(node, settings)
    name, refused = socket.gethostname(), request.refused_keys

    def owner() -> tuple[int, int]:
        account = accounts.find(request.user)
        return (account.pw_uid, account.pw_gid) if account else (request.uid or 0, 0)

    authorized.declarable(request.authorized_keys)
    _keep_login(request, node)
    user_key = node.path(keys.USER_KEY)
    pairs = [
        KeyPair(keys.USER, user_key, f"{request.user}@{name}", owner, refused),
        KeyPair(HOST, host_key, f"root@{name}", lambda: (node.uid, node.gid), refused),
    ]
    user = accounts.UserPart(request.user, request.uid, request.shell)
    parts: list[Part] = [user, Directories(), *pairs]
    outcome = settle(parts, node)
    public = {pair.kind: pair.public for pair in pairs}
    sign = _to_sign(request, node, public)
    if not outcome.errors and (node.check_mode or not sign):
        account = accounts.find(request.user)
        if request.strict is None and account:
            table = mounts.read(node.root)
            request = replace(request, strict=authorized.shared(account.pw_dir, table, node.root))
        host_key_changed = any(diff["after_header"] == str(host_key) for diff in outcome.diff)
        later = settle(
            [Files(request, public, sign, host_key_line, host_key_changed, daemon)], node
        )
        outcome.changed |= later.changed
        outcome.diff += later.diff
        outcome.checks += later.checks
        outcome.errors += later.errors
    public_keys = {kind: key for kind, key in public.items() if key}
    returned = {"public_keys": public_keys, "sign": sign}
    return Settled(outcome, returned=returned, whole=not sign)


def _keep_authority(request: TrustRequest, node: Node) -> None:
    """Refuse a node that trusts an unrecorded authority. Raises PlanError."""
    lines = (node.read(texts.USER_AUTHORITIES) or "").splitlines()
    trusted = {digest(line) for line in lines if keys.public_key(line)}
    desired = {digest(line) for line in request.authority["user_authorities"]}
    if trusted and not (request.issued or request.replace_authority or trusted & desired):
        raise PlanError(
            f"this node trusts the SSH authority {' '.join(sorted(trusted))}, of which"
            " ssh_trust_state_directory on the controller has no record. Restore that directory"
            " from its copy; or replace the authority on all nodes:"
            " -e ssh_trust_replace_authority=true (docs/ssh-trust.md)"
        )


def _keep_login(request: TrustRequest, node: Node) -> None:
    """Refuse strictness by default where it would lock out Ansible itself. Raises PlanError."""
    account = accounts.find(request.user)
    if request.login != request.user or request.strict is not None or request.authorized_keys:
        return
    if account is None or "AuthorizedKeysFile" in (node.read(SSHD_DROP_IN) or ""):
        return
    if authorized.shared(account.pw_dir, mounts.read(node.root), node.root):
        raise PlanError(
            f"Ansible logs in as {request.user}, whose home {account.pw_dir} hosts may share: with"
            " ssh_trust_strict: auto sshd would no longer accept the keys in it. Log in as"
            " another user; or declare the key in ssh_trust_authorized_keys; or set"
            " ssh_trust_strict to true or false"
        )


def _host_key(node: Node, settings: sshd.SshdSettings) -> tuple[Path, str]:
    """The ed25519 host key in use, and its HostKey line for the drop-in, if needed.

    Such a line disables sshd's defaults. It is therefore needed only if the operator lists host
    keys without an ed25519 key; one that is listed stays, as clients may know it.
    """
    default = node.path(HOST_KEY)
    listed = [Path(value) for value in settings.values.get("hostkey", [])]
    if f"HostKey {default}\n" in (node.read(SSHD_DROP_IN) or ""):
        if not listed:  # sshd refuses its configuration, and so prints none
            return default, str(default)
        if default in listed:
            listed.remove(default)  # our line; the operator may list it as well
    if not listed or default in listed:
        return default, ""
    usable = (path for path in listed if keys.key_of(plan_file(Path(f"{path}.pub"), None).before))
    path = next(usable, None)
    return (path, "") if path else (default, str(default))


def _certificate_text(request: TrustRequest, node: Node, kind: str) -> str:
    """The certificate that the node will have after this call."""
    return request.certificates.get(kind) or node.read(texts.CERTIFICATES[kind]) or ""


def _to_sign(request: TrustRequest, node: Node, public: Mapping[str, str]) -> dict[str, str]:
    """Certificates that the controller must sign first, by kind, with the reason."""
    sign = {}
    for kind, key in public.items():
        text = _certificate_text(request, node, kind)
        if not key:
            reason = "its key pair is missing"
        elif not request.authority["user_authorities"]:
            reason = "the authority does not exist yet"
        else:
            reason = request.fault(kind, text, key, request.now, request.renew_before_s)
        if reason:
            sign[kind] = reason
    return sign


class Directories:
    """The directories of the collection, writable by root only.

    sshd refuses lists that others could replace, and every login shell reads the environment of
    MPI from the parent directory.
    """

    def _compared(self, node: Node) -> tuple[str, dict[Path, str]]:
        own = node.path(keys.OWN)
        actual = {path: keys.standing(path) or "absent" for path in (own.parent, own)}
        return f"mode 0755 owner {node.uid}:{node.gid}", actual

    def plan(self, node: Node) -> Plan:
        def close(path: Path) -> None:
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
            os.chown(path, node.uid, node.gid)
            path.chmod(0o755)

        desired, actual = self._compared(node)
        return Plan(
            steps=[
                Step(str(path), found, desired, partial(close, path), essential=True)
                for path, found in actual.items()
                if found != desired
            ]
        )

    def verify(self, node: Node) -> Verdict:
        desired, actual = self._compared(node)
        return Verdict(
            [_check(node, "directory", desired, found, str(path)) for path, found in actual.items()]
        )


@dataclass(frozen=True)
class Files:
    """Certificates, lists and drop-ins, written in one step. sshd's files are restored on error."""

    request: TrustRequest
    keys: Mapping[str, str]
    sign: Mapping[str, str]
    host_key_line: str
    host_key_changed: bool
    daemon: sshd.Sshd

    def plan(self, node: Node) -> Plan:
        plans = self.files(node)
        shown = diffs(plans)
        for kind, reason in self.sign.items():
            path = str(node.path(texts.CERTIFICATES[kind]))
            shown.append(diff(path, f"{reason}\n", "a new certificate\n"))
        act = partial(self._apply, node, plans)
        step = Step("sshd", "with its old files", "reloaded", act, shown=shown)
        return Plan(steps=[step] if shown or self.host_key_changed else [])

    def files(self, node: Node) -> list[FilePlan]:
        """All files in the order in which they are written: none refers to a later one."""
        authority, user = self.request.authority, self.request.user

        krl = base64.b64decode(authority["revoked"]).decode("utf-8", "surrogateescape")
        return [
            *(
                node.record(name, _certificate_text(self.request, node, kind))
                for kind, name in texts.CERTIFICATES.items()
                if not self.sign
            ),
            node.file(
                texts.USER_AUTHORITIES, "".join(f"{x}\n" for x in authority["user_authorities"])
            ),
            node.file(texts.PRINCIPALS, "".join(f"{name}\n" for name in self.request.admits)),
            plan_file(node.path(keys.REVOKED), krl, uid=node.uid, gid=node.gid, secret=True),
            node.record(keys.KNOWN_HOSTS, texts.authority_lines(authority)),
            node.file(texts.DECLARED, self._declared()),
            node.record(SSH_DROP_IN, texts.ssh_text(user, authority)),
            _including(node, SSH_CONFIG, SSH_DROP_IN),
            node.record(SSHD_DROP_IN, texts.sshd_text(user, self.host_key_line, self._strict())),
            _including(node, SSHD_CONFIG, SSHD_DROP_IN),
        ]

    def _declared(self) -> Optional[str]:
        lines = self.request.authorized_keys if self.request.strict else ()
        return "".join(f"{line.strip()}\n" for line in lines) or None

    def _strict(self) -> Mapping[str, str]:
        return texts.strict_settings(bool(self._declared())) if self.request.strict else {}

    def _apply(self, node: Node, plans: Sequence[FilePlan]) -> None:
        read_at_start = {node.path(SSHD_DROP_IN), node.path(SSHD_CONFIG)}
        configuration = [plan for plan in plans if plan.changed and plan.path in read_at_start]
        host = any(
            plan.changed and plan.path == node.path(texts.CERTIFICATES[HOST]) for plan in plans
        )
        keys.sweep(node.path(keys.OWN))
        for plan in plans:
            plan.apply()
        if not (configuration or host or self.host_key_changed):
            return
        fault = self.daemon.fault()
        if not fault:
            self.daemon.reload()
            return
        for plan in reversed(configuration):
            plan.undo()
        raise StepError(
            f"sshd refuses the configuration, which was restored: {fault}\n"
            "If the named file is yours, repair it (test with sshd -t) and run again."
        )

    # Reading back.

    def verify(self, node: Node) -> Verdict:
        plans = self.files(node)
        checks = [
            compare(
                "file",
                "as wanted",
                "different" if plan.changed else "as wanted",
                subject=str(plan.path),
                check_mode=node.check_mode,
            )
            for plan in plans
        ]
        checks += [self._certificate(node, kind, key) for kind, key in self.keys.items()]
        fault = self.daemon.fault()
        checks.append(_check(node, "sshd_configuration", "valid", fault or "valid"))
        # Certificates are replaced before they expire, and checked above.
        replaced = {node.path(name) for name in texts.CERTIFICATES.values()}
        recorded = [plan for plan in plans if plan.path not in replaced]
        return Verdict(checks if fault else [*checks, *self._sshd(node)], files=recorded)

    def _certificate(self, node: Node, kind: str, key: str) -> Check:
        name = f"{kind}_certificate"
        desired = f"valid for {self.request.renew_before_s // DAY} days or more"
        if self.sign.get(kind):
            return Check(name, desired, "none that is valid", PENDING, reason=self.sign[kind])
        # According to the node's clock, which sshd and ssh use.
        clock = time.time()
        fault = self.request.fault(
            kind, node.read(texts.CERTIFICATES[kind]) or "", key, int(clock), 0
        )
        record = self.request.issued[kind]
        days = (record["valid_before"] - self.request.now) // DAY
        actual = f"{days} days left, serial {record['serial']}, by {record['authority']}"
        if not fault:
            return Check(name, desired, actual, OK)
        reason = f"{fault} by this node's clock: {time.ctime(clock)}"
        return _check(node, name, desired, actual, reason=reason)

    def _sshd(self, node: Node) -> list[Check]:
        address = (self.request.sources or ["127.0.0.1"])[0]
        settings = self.daemon.settings(self.request.user, address, self.request.port)
        checks = []
        by_keyword = {
            "trustedusercakeys": texts.USER_AUTHORITIES,
            "authorizedprincipalsfile": texts.PRINCIPALS,
            "revokedkeys": keys.REVOKED,
            "pubkeyauthentication": "yes",
            **{name.lower(): value for name, value in self._strict().items()},
        }
        for keyword, desired in by_keyword.items():
            actual, place = settings.first(keyword), settings.foreign(keyword)
            step = f"remove {keyword} for {self.request.user} from {place}" if place else ""
            reason = step or f"{keys.DROP_IN} must set it for {self.request.user}"
            checks.append(_check(node, f"sshd_{keyword}", desired, actual, "", reason, step))
        signed_by = [key.split()[0] for key in self.request.authority["user_authorities"]]
        checks += sshd.login_checks(
            settings,
            node.root,
            self.request.user,
            accounts.groups_of(self.request.user),
            (signed_by or [""])[0],
        )
        account = accounts.find(self.request.user)
        if account and not self.request.strict:
            patterns = settings.values.get("authorizedkeysfile", [])
            checks += authorized.checks(account, patterns, self.request.authorized_keys)
        return checks if self.sign else [*checks, self._presented(node, settings, checks)]

    def _presented(self, node: Node, settings: sshd.SshdSettings, checks: Sequence[Check]) -> Check:
        """Compare the certificate that the running sshd presents with the file."""
        if any(x.name == "sshd_hostkeyalgorithms" and x.status == FAILED for x in checks):
            reason = "sshd presents no certificate of its type: see sshd_hostkeyalgorithms"
            return not_applicable("sshd_presents", "its host certificate", reason)
        text = _certificate_text(self.request, node, HOST)
        desired: Optional[str] = " ".join(text.split()[:2])

        def presents() -> bool:
            return self.daemon.presented(settings) == desired

        current = presents()
        if not current and not node.check_mode:
            # An earlier run wrote the file and was killed, or sshd is still reading its files.
            self.daemon.reload()
            current = until(presents, PRESENTED_S, 0.1)
        actual = desired if current else self.daemon.presented(settings)
        unit = "" if current else self.daemon.running_unit()
        reason, by_hand = f"sshd has not read its files: systemctl restart {unit}", ""
        if not unit:
            reason = by_hand = f"start sshd: systemctl start {' or '.join(sshd.UNITS)}"
        return _check(
            node,
            "sshd_presents",
            f"host certificate {digest(text)}",
            f"host certificate {digest(actual)}" if actual else "no host certificate",
            reason=reason,
            by_hand=by_hand,
        )


def _check(
    node: Node,
    name: str,
    desired: Any,
    actual: Any,
    subject: str = "",
    reason: str = "",
    by_hand: str = "",
) -> Check:
    pending = node.check_mode and not by_hand
    check = compare(name, desired, actual, subject=subject, check_mode=pending, reason=reason)
    return check if check.status == OK else replace(check, by_hand=by_hand)


def _including(node: Node, main: str, drop_in: str) -> FilePlan:
    """OpenSSH's main file, with an Include of the drop-in's directory.

    A missing Include is added at the top, where no Match or Host block applies to it.
    """
    text, path = node.read(main) or "", node.path(drop_in)
    if not re.search(rf"^\s*include[\s=].*{path.parent.name}/", text, re.IGNORECASE | re.MULTILINE):
        text = replace_block("", [f"Include {path}"], BLOCK) + text
    return node.edited(main, text)
