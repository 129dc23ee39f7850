# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Logins from a host to others, ssh's settings there, and the explanation of failures."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import Check
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh import (
    client,
    keys,
    paths,
    probe,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh.refusals import Refusal

USER = pwd.struct_passwd(("mpi", "x", os.geteuid(), os.getegid(), "", "/", "/bin/sh"))


def test_ssh_never_prompts_and_verifies_hosts() -> None:
    words = client.argv("-oProxyCommand=x", 7)
    assert {"BatchMode=yes", "ConnectTimeout=7"} <= set(words)
    assert not any("StrictHostKeyChecking" in word or "KnownHosts" in word for word in words)
    assert words[words.index("--") + 1] == "-oProxyCommand=x", "no target is read as an option"


@pytest.mark.parametrize(("target", "quick"), [("node02", False), ("node02-rail0", True)])
def test_only_further_names_use_a_quick_key_exchange(
    monkeypatch: pytest.MonkeyPatch, target: str, quick: bool
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        client,
        "ask",
        lambda words, _user, limit_s: asked.extend([*words, str(limit_s)]) or ("", "", Refusal("")),
    )
    probe.attempt({"host": "node02", "target": target}, USER, 7)
    assert any(word.startswith("KexAlgorithms=") for word in asked) is quick
    assert {"ConnectTimeout=7", "7"} <= set(asked)


def tried(host: str, why: str = "") -> dict[str, Any]:
    return {"host": host, "target": host, "why": why}


def test_a_check_per_pair() -> None:
    attempts = [
        tried("node02"),
        tried("node03", "Connection refused"),
        tried("node04", "timed out"),
        tried("node05", "no host key"),
        tried("node06"),
    ]
    lost, incomplete = ["node04", "node06"], ["node05"]
    found = probe.Verdicts("node01", lost, incomplete).checks(attempts)
    skipped = "not_applicable"
    assert [each.status for each in found] == ["ok", "failed", skipped, skipped, "ok"]
    assert (found[1].subject, found[1].found) == ("node01 -> node03", "Connection refused")
    assert "node04 dropped out of this run earlier (timed out)" in found[2].reason
    (pending,) = probe.Verdicts("node01", check_mode=True).checks(attempts[1:2])
    assert pending.status == "pending"


def program(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Replace ssh by a shell script."""
    path = folder / "ssh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    folder.chmod(0o755)
    monkeypatch.setattr(client, "argv", lambda target, *_given: [str(path), target])


def test_a_hanging_login_is_terminated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "exec sleep infinity")
    monkeypatch.setattr(client, "GRACE_S", 0.1)
    assert "timed out" in probe.attempt(tried("n"), USER, 0)["why"]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo Welcome; echo $1", ""),
        ("echo node02.b300.example.net", ""),
        ("echo node03", "node03 answered"),
        ("echo node021", "node021 answered"),
        ("exit 0", "nothing answered"),
        ("echo; printf '\\033[2J'", "\\x1b[2J answered"),
    ],
)
def test_the_answering_host_is_compared(
    script: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Host alias or a wrong address may lead to another host of the cluster."""
    program(tmp_path, monkeypatch, script)
    monkeypatch.setattr(probe, "HOSTS", tmp_path / "hosts")
    probe.HOSTS.write_text("10.0.0.12 node02\n10.0.0.13 node03\n")
    found = probe.attempt(tried("node02"), USER, 0)
    assert found["why"] == why
    (check,) = probe.Verdicts("node01", ["node02"]).checks([found])
    # This host takes a wrong path, or the target has another name or a login file that exits.
    at = "" if why in ("", "node03 answered") else "node02"
    assert (check.status, check.at) == ("failed" if why else "ok", at)


OURS = f"""user mpi
hostname node02
port 22
stricthostkeychecking true
identitiesonly yes
hostkeyalgorithms ssh-ed25519-cert-v01@openssh.com,ssh-ed25519
pubkeyacceptedalgorithms rsa-sha2-512,ssh-ed25519-cert-v01@openssh.com
identityfile {keys.USER_KEY}
certificatefile {keys.USER_CERTIFICATE}
globalknownhostsfile {keys.KNOWN_HOSTS} /etc/ssh/ssh_known_hosts
revokedhostkeys {keys.REVOKED}
"""
NODE02 = {"host": "node02", "target": "node02"}


def compared(
    monkeypatch: pytest.MonkeyPatch, text: str, check_mode: bool = False, failure: str = ""
) -> list[Check]:
    answers = {"ssh": (text, "", Refusal(failure))}
    empty = "", "", Refusal("")
    monkeypatch.setattr(client, "ask", lambda words, user, limit: answers.get(words[0], empty))
    return client.checks(NODE02, USER, 5, check_mode)


@pytest.mark.parametrize(
    ("line", "keyword"),
    [
        ("user root", "user"),
        ("hostname 10.0.0.9", "hostname"),
        ("port 2222", "port"),
        ("identitiesonly no", "identitiesonly"),
        ("identityfile ~/.ssh/id_rsa", "identityfile"),
        ("certificatefile /x-cert.pub", "certificatefile"),
        ("stricthostkeychecking false", "stricthostkeychecking"),
        ("stricthostkeychecking accept-new", "stricthostkeychecking"),
        ("globalknownhostsfile /etc/ssh/ssh_known_hosts", "globalknownhostsfile"),
        ("revokedhostkeys none", "revokedhostkeys"),
        ("hostkeyalgorithms rsa-sha2-512", "hostkeyalgorithms"),
        ("pubkeyacceptedalgorithms ssh-ed25519", "pubkeyacceptedalgorithms"),
        ("proxyjump gateway", "proxyjump"),
        ("proxycommand nc %h %p", "proxycommand"),
    ],
)
def test_settings_of_ssh_are_compared(
    line: str, keyword: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = OURS.replace("hostname node02", "hostname node02.example.net")
    for text in (OURS, domain):
        assert {each.status for each in compared(monkeypatch, text)} == {"ok"}
    kept = [each for each in OURS.splitlines() if not each.startswith(f"{keyword} ")]
    text = "\n".join([*kept, line])
    for check_mode, status in ((False, "failed"), (True, "pending")):
        (check,) = [each for each in compared(monkeypatch, text, check_mode) if each.reason]
        assert (check.name, check.subject, check.status) == ("ssh_client", keyword, status)
        assert check.found == line.partition(" ")[2].replace("false", "no")
    refused = compared(monkeypatch, text, failure="/x line 3: Bad configuration option")
    assert "/x line 3: Bad configuration option" in {each.reason for each in refused}


@pytest.mark.parametrize(
    ("mine", "ours", "keyword", "values", "line"),
    [
        ("Port 2222", "Port 22", "port", ("22", "2222"), 4),
        ('  PORT="2222"', "", "port", ("22", "2222"), 4),
        # The operator's line that the check must find.
        ("StrictHostKeyChecking no", "", "stricthostkeychecking", ("yes", "no"), 4),  # a fault
        ("HostName %h.other.org", "", "hostname", ("n", "n.other.org"), 4),
        ("Port 22\nPort %x", "", "port", ("22", "2222"), 5),
        ("Port 22", "Port 2222", "port", ("22", "2222"), 0),  # the role repairs its drop-in
        ("", "", "proxyjump", ("none", "x"), 0),
    ],
)
def test_the_line_of_a_foreign_setting_is_named(
    mine: str, ours: str, keyword: str, values: tuple[str, str], line: int, tmp_path: Path
) -> None:
    """In any spelling that ssh accepts, and not a line for other hosts."""
    config, drop_in, pipe = (tmp_path / name for name in ("config", keys.DROP_IN, "pipe"))
    config.write_text(f"Host x\n#Port 2222\nPorts 2\0\x852\x0b\r\n{mine}\n")
    drop_in.write_text(f"{ours}\n")
    os.mkfifo(pipe)
    files = (pipe, tmp_path / "missing", config, drop_in)
    log = "".join(f"debug1: Reading configuration data {file}\n" for file in files)
    found = client.place_of(log, keyword, *values, USER, 5)
    assert found == (f"{config}:{line}" if line else "")


def test_a_foreign_setting_is_for_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "place_of", lambda _log, keyword, *_given: "/c:3")
    (check,) = [each for each in compared(monkeypatch, OURS.replace("22", "2")) if each.reason]
    assert check.by_hand == "remove port from /c:3"


def test_a_wrong_setting_is_reported_once() -> None:
    wrong = Check("ssh_client", "22", "2222", "failed", "port", by_hand="remove port from x:2")
    other = Check("ssh_client", "22", "23", "failed", "port", by_hand="remove port from x:9")
    found = list(client.without_repeats({"node01": [wrong], "node02": [wrong], "node03": [other]}))
    assert [each.subject for each in found] == ["port", "port of node03"]


def blame(attempts: list[dict[str, Any]], **options: Any) -> list[str]:
    checks = probe.Verdicts("launcher", **options).checks(attempts)
    return [check.at for check in checks]


def test_the_refusing_host_is_blamed() -> None:
    refused, fine = {"side": "either", "remedy": ""}, {"side": "either"}
    one = {**tried("node02", "Permission denied (publickey)."), **refused}
    assert blame([{**tried("node01"), **fine}, one]) == ["", "node02"]
    assert blame([one]) == ["node02"], "a single target does not incriminate this host"
    both = [one, {**one, "host": "node03", "target": "node03"}]
    assert blame(both) == ["", ""], "refused by all hosts: its own key"
    said = [{**each, "side": "target"} for each in both]
    assert blame(said) == ["node02", "node03"], "unless each host claims the fault"
    assert blame([one], misled={"node02": "remove port"}) == [""]
    rail = {**one, "target": "node02-rail0"}
    assert blame([one, rail]) == ["node02", "node02"]
    assert blame([{**tried("node02"), **fine}, rail]) == ["", ""], "its sshd works: the rail"
    target = [{**each, "side": "target"} for each in (rail, {**tried("node02"), **fine})]
    assert blame(target) == ["node02", ""], "sshd there refuses this name"


def test_an_unresolved_name_points_to_the_resolver() -> None:
    unknown = "Could not resolve hostname node02: Temporary failure in name resolution"
    each = {**tried("node02", unknown), "side": "here", "remedy": "run --tags names"}
    rail = {**each, "why": "ping: node02-rail0: Name or service not known", "rail": "rail0"}
    for source in ("", "put files first"):
        found = probe.Verdicts("node01", resolver_step=source).checks([each, rail])
        assert [(check.at, check.by_hand) for check in found] == [("", source), ("", source)]


@pytest.mark.parametrize(("status", "at"), [("failed", "node02"), ("pending", "node02")])
def test_a_manual_remedy_is_for_the_target(status: str, at: str) -> None:
    each = {**tried("node02", "x"), "side": "target", "remedy": "rm /etc/nologin"}
    (check,) = probe.Verdicts("node01", check_mode=status == "pending").checks([each])
    assert (check.status, check.at, check.by_hand) == (status, at, "rm /etc/nologin")
    (lost,) = probe.Verdicts("node01", ["node02"]).checks([each])
    assert (lost.status, lost.at, lost.by_hand) == ("not_applicable", "", "")
    each.update(rail="rail0")
    (rail,) = probe.Verdicts("node01").checks([each])
    assert "--tags rails,links" in rail.reason, "no remedy of ssh"


def test_the_witness_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "carried", lambda _run, *words: ("lost", words[-1]))
    rail = {"host": "node02", "target": "node02-rail3", "rail": "rail3"}
    for witness, end in (("third", "third"), (None, "either")):
        found = probe.attempt({**rail, "witness": witness}, USER, 5)
        assert (found["side"], found["lossy"]) == (end, bool(witness))


def test_the_host_that_loses_packets_is_blamed() -> None:
    lossy = {"host": "node02", "target": "node02-rail3", "rail": "rail3", "lossy": True}
    all_ends = [{**lossy, "why": "5.0% lost", "side": end} for end in ("either", "here", "target")]
    found = probe.Verdicts("node01").checks(all_ends)
    assert {(each.name, each.status, each.subject) for each in found} == {
        ("rail_peer", "failed", "node01 -> node02-rail3")
    }
    named = [("node01 and node02", ""), ("node01", ""), ("node02", "node02")]
    for each, (hosts, at) in zip(found, named):
        assert f" of rail3 on {hosts}: ethtool" in each.by_hand and each.at == at
    attempt = all_ends[2]
    (other,) = probe.Verdicts("node01").checks([{**attempt, "why": "no answer", "lossy": False}])
    assert (other.status, other.at, other.by_hand) == ("failed", "", "")
    (skipped,) = probe.Verdicts("node01", ["node02"]).checks([attempt])
    assert (skipped.status, skipped.at, skipped.by_hand) == ("not_applicable", "", "")


def test_a_dead_rail_is_not_blamed_on_a_firewall(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def filters(_run: object, addresses: Sequence[str]) -> tuple[dict[str, str], str]:
        asked.extend(addresses)
        return dict.fromkeys(addresses, "ufw"), "open"

    monkeypatch.setattr(probe.filters, "filters", filters)
    rails = [
        {**tried("node02", why), "rail": rail} for rail, why in (("rail0", "lost"), ("rail1", ""))
    ]
    back = {"management": 113, "rail0": 110, "rail1": 110}
    attempts = [{**tried("node02"), "back": back}, *rails]
    own = {"management": "10.0.0.1", "rail0": "10.1.0.1", "rail1": "10.1.1.1"}
    found = list(probe.connections(attempts, own, "node01", False))
    assert [each.subject for each in found] == [
        "node02 -> node01 management",
        "node02 -> node01 rail1",
    ]
    assert asked == ["10.0.0.1", "10.1.1.1"]
    assert probe.networks_of(attempts[0], attempts) == ["management", "rail0", "rail1"]
    assert probe.networks_of({"host": "node02", "target": "node02-rail0"}, attempts) == []
