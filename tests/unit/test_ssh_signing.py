"""Signing with a key file, a key in the ssh-agent, a passphrase or the operator's command, and
state that a group of operators shares.

ssh-agent, ssh-add and ssh-keygen are the real programs. `vault` is a program that takes the
parameters of "Sign SSH key" in the API of Vault's SSH secrets engine, as HashiCorp documents them;
ssh-keygen signs for it and for the operator's command.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.action import ssh_authority
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh.keys import digest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh import authority, signing
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.authority import (
    AuthorityError,
    AuthorityStore,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.journal import Journal
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.signing import SigningError

from tests.unit.action_plays import run_play
from tests.unit.ssh_cluster import (
    DAY,
    NOW,
    arguments,
    directory,
    issue,
    keypair,
    refused,
    signed,
    ssh_keygen,
)

PAGE = Path(__file__).parents[2] / "docs/ssh-trust.md"
SECRET = "correct 'horse' $battery"


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An ssh-agent without keys; its socket."""
    socket = tmp_path / "agent"
    printed = subprocess.check_output(["ssh-agent", "-s", "-a", str(socket)], text=True)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
    monkeypatch.setenv("SSH_AGENT_PID", printed.split("SSH_AGENT_PID=")[1].split(";")[0])
    yield socket
    subprocess.run(["ssh-agent", "-k"], check=True, stdout=subprocess.DEVNULL)


def signed_by(folder: Path, text: str) -> str:
    """ssh-keygen's output for a certificate."""
    path = folder / "x-cert.pub"
    path.write_text(text)
    return ssh_keygen("-L", "-f", str(path)).stdout


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_a_key_in_the_agent_signs(kind: str, tmp_path: Path, agent: Path) -> None:
    ca, key = keypair(tmp_path / "ca", "-t", kind), keypair(tmp_path / "key")
    subprocess.run(["ssh-add", "-q", tmp_path / "ca"], check=True)
    (tmp_path / "ca").unlink()
    texts, records = issue(tmp_path, key, ca="ca.pub")
    for each, text in texts.items():
        assert digest(ca) in signed_by(tmp_path, text)
        assert f"Serial: {records[each].serial}\n" in signed_by(tmp_path, text)
    assert Journal(tmp_path).read()["node01"].issued == list(records.values())


def test_a_key_missing_from_the_agent_is_named(
    tmp_path: Path, agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca, key = keypair(tmp_path / "ca"), keypair(tmp_path / "key")
    code = "ssh_key_not_in_agent"
    with refused(SigningError, code, path=tmp_path / "ca.pub", key=digest(ca), socket=str(agent)):
        issue(tmp_path, key, ca="ca.pub")
    monkeypatch.delenv("SSH_AUTH_SOCK")
    with refused(SigningError, code, socket="not set"):
        issue(tmp_path, key, ca="ca.pub")
    assert Journal(tmp_path).read() == {}
    assert list(tmp_path.glob(".sign-*")) == []


def shown(printed: str) -> str:
    """The output of ssh-keygen -L in the form of docs/ssh-trust.md: one line per field, without
    keys.
    """
    lines = [" ".join(line.split()) for line in printed.replace(f"\n{' ' * 16}", " ").splitlines()]
    kept = ("Type:", "Key ID:", "Principals:", "Critical Options:", "Extensions:")
    return "\n".join(f"    {line}" for line in lines if line.startswith(kept))


@pytest.mark.parametrize(
    "options", [("-t", "ed25519"), ("-t", "rsa", "-b", "2048"), ("-t", "ecdsa")]
)
def test_openssh_reads_the_certificates(options: tuple[str, ...], tmp_path: Path) -> None:
    authority, key = keypair(tmp_path / "ca", *options), keypair(tmp_path / "key")
    texts, records = issue(tmp_path, key)
    read = {}
    for kind, text in texts.items():
        path = tmp_path / f"{kind}-cert.pub"
        path.write_text(text)
        read[kind] = ssh_keygen("-L", "-f", str(path)).stdout
        assert f"ssh-ed25519-cert-v01@openssh.com {kind} certificate" in read[kind]
        assert digest(authority) in read[kind]
        assert digest(key) in read[kind]
        assert f"Serial: {records[kind].serial}" in read[kind]
        assert records[kind].digest == digest(text)
    documented = PAGE.read_text(encoding="utf-8").partition("## Certificates")[2].rstrip()
    assert documented.split("\n\n")[2:] == [shown(read[kind]) for kind in ("user", "host")]
    assert records["user"].valid_before == NOW + 10 * DAY
    assert records["user"].valid_after == NOW - signing.BACKDATED_S
    assert Journal(tmp_path).read()["node01"].issued == list(records.values())


def test_an_unreadable_authority_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = keypair(tmp_path / "key")
    with pytest.raises(SigningError, match="ca: cannot read it"):
        issue(tmp_path, key)
    keypair(tmp_path / "ca")
    private = (tmp_path / "ca").read_bytes()
    (tmp_path / "ca").chmod(0o640)
    with pytest.raises(SigningError, match=r"mode 0640 owner .*: chmod 600"):
        issue(tmp_path, key)
    with monkeypatch.context() as patch:
        status = SimpleNamespace(st_mode=0o100600, st_uid=4242)
        patch.setattr(Path, "stat", lambda _path: status)
        with pytest.raises(SigningError, match=r"owner 4242: .*: chown \d+ /"):
            signing.private_key(tmp_path / "ca", None)
    (tmp_path / "ca").chmod(0o600)
    for text in (b"x", private[:99]):
        (tmp_path / "ca").write_bytes(text)
        with refused(SigningError, "ssh_ca_unusable", path=tmp_path / "ca"):
            issue(tmp_path, key)


def test_only_one_ed25519_key_is_signed(tmp_path: Path) -> None:
    keypair(tmp_path / "ca")
    key = keypair(tmp_path / "key")
    weak = keypair(tmp_path / "weak", "-t", "rsa", "-b", "1024")
    for text in ("", weak, f"{key}\n@cert-authority * {key}", f"restrict,pty {key}", f"{key} x"):
        with refused(SigningError, "ssh_key_invalid", name="node01", kind="host"):
            issue(tmp_path, text, ("host",))
    assert Journal(tmp_path).read() == {}


def made(folder: Path, passphrase: str = "") -> Path:
    """The user's private key of a new authority."""
    journal = Journal(folder / "ssh-ca")
    with journal.locked():
        store = AuthorityStore(journal, passphrase)
        outcome = store.prepare(["node01"], comment="test", now=NOW, write=True)
    return outcome.authorities[0].private["user"]


def test_a_new_authority_has_the_passphrase_and_signs_with_it(tmp_path: Path) -> None:
    path, key = made(tmp_path, f"{SECRET}\n"), keypair(tmp_path / "key")
    for name in ("user_ca", "host_ca"):
        file = str(path.with_name(name))
        assert ssh_keygen("-y", "-P", "", "-f", file).returncode
        assert ssh_keygen("-y", "-P", SECRET, "-f", file).returncode == 0
    folder = path.parent
    for given in (SECRET, f"{SECRET}\n"):  # as written in a YAML block
        texts, _records = issue(folder, key, ca="user_ca", passphrase=given)
        assert "user certificate" in signed_by(tmp_path, texts["user"])
    for wrong in ("", "wrong"):
        with pytest.raises(SigningError, match=r"user_ca: .*passphrase.*: set ssh_trust_ca_pass"):
            issue(folder, key, ca="user_ca", passphrase=wrong)


def test_a_new_key_without_passphrase_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authority, "ASKPASS", "#!/absent\n")  # as where nothing may be executed
    with pytest.raises(AuthorityError, match="got no passphrase for the new key"):
        made(tmp_path, SECRET)
    assert list((tmp_path / "ssh-ca/authorities").iterdir()) == []
    made(tmp_path)


def test_the_passphrase_is_in_no_argument_or_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = subprocess.check_output(["sh", "-c", "command -v ssh-keygen"], text=True).strip()
    seen, wrapper = tmp_path / "seen", tmp_path / "bin/ssh-keygen"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\n{{ echo "$@"; env; }} >>{seen}\nexec {real} "$@"\n')
    wrapper.chmod(0o700)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    path = made(tmp_path, SECRET)
    issue(path.parent, keypair(tmp_path / "key"), ca="user_ca", passphrase=SECRET)
    assert seen.read_text().count("SSH_ASKPASS=") == 4
    assert SECRET not in seen.read_text()
    files = [each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()]
    assert not any(SECRET.encode() in each for each in files)


PLAY = """
- hosts: localhost
  connection: local
  gather_facts: false
  vars:
    ssh_trust_ca_passphrase: "{{{{ passphrase }}}}"
  tasks:
    - baremetal.mpi_roce.ssh_authority: &authority
        directory: {directory}
        cluster_name: c
        state_directory: "{folder}/ssh-ca"
      register: prepared
    - baremetal.mpi_roce.ssh_authority: {{<<: *authority, after: true}}
    - baremetal.mpi_roce.ssh_trust:
        authority: "{{{{ prepared.authority }}}}"
        host: "{{{{ prepared.hosts.node01 }}}}"
        state_directory: "{{{{ prepared.state_directory }}}}"
      check_mode: true
      ignore_errors: true  # a failure is printed too, and that must have no passphrase either
    - debug: {{var: prepared}}
"""


# As callbacks do that send a run to another system.
CALLBACK = """
from ansible.plugins.callback import CallbackBase

class CallbackModule(CallbackBase):
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "all_of_it"

    def v2_runner_on_ok(self, result):
        self._display.display(f"given: {result._task_fields} {result._result}")

    def v2_runner_on_failed(self, result, **_options):
        self.v2_runner_on_ok(result)
"""


@pytest.mark.slow
def test_ansible_prints_no_passphrase_at_any_verbosity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANSIBLE_DISPLAY_ARGS_TO_STDOUT", "1")
    monkeypatch.setenv("ANSIBLE_CALLBACK_PLUGINS", str(tmp_path))
    monkeypatch.setenv("ANSIBLE_CALLBACKS_ENABLED", "all_of_it")
    (tmp_path / "all_of_it.py").write_text(CALLBACK)
    (tmp_path / "vars.yml").write_text("passphrase: correct-horse\n")
    play = PLAY.format(directory=json.dumps(directory(2)), folder=tmp_path)
    options = ("-vvvvv", "--diff", f"-e@{tmp_path}/vars.yml")
    code, output = run_play(tmp_path, play, Path("localhost,"), *options)
    assert code == 0, output[-3000:]
    assert "PRIVATE KEY" in (tmp_path / "ssh-ca/authorities/generation-1/user_ca").read_text()
    assert "user_authorities" in output
    assert output.count("given: ") == 4
    assert "correct-horse" not in output


SIGNER = """
import base64, json, subprocess, sys
from pathlib import Path
from types import SimpleNamespace
mode, request = sys.argv[1], json.load(sys.stdin)
folder = Path(sys.argv[2])
(folder / "request.json").write_text(json.dumps(request))
if mode == "fails":
    sys.exit("permission denied by policy")
if mode in ("garbage", "nothing", "hangs"):
    sys.stdin.close()
    sys.exit(subprocess.run(["sleep", "600"]).returncode if mode == "hangs" else print(
        "\\x1b[2J<html>" if mode == "garbage" else ""))
host = (request["kind"] == "host") != (mode == "type")
names = request["principals"] + (["root"] if mode == "principals" else [])
key = (folder / "other.pub").read_text() if mode == "key" else request["public_key"]
later = 1 if mode == "validity" else 0
serial = {"serial 0": 0, "one serial": 7}.get(mode, request["serial"] // 2 + 1)
options = ["clear", *request["extensions"]]
if request["source_addresses"] and mode != "critical options":
    options.append("source-address=" + ",".join(request["source_addresses"]))
if mode == "extensions":
    options.append("permit-agent-forwarding")
(folder / "k.pub").write_text(key)
span = "{:#x}:{:#x}".format(request["valid_after"] + 60, request["valid_before"] + later)
argv = ["ssh-keygen", "-q", "-s", str(folder / ("other" if mode == "signing key" else "ca"))]
argv += ["-I", request["key_id"], "-n", ",".join(reversed(names)), "-z", str(serial), "-V", span]
argv += ["-h"] if host else [word for each in options for word in ("-O", each)]
subprocess.run([*argv, str(folder / "k.pub")], check=True)
text = (folder / "k-cert.pub").read_text()
if mode == "signature":
    blob = bytearray(base64.b64decode(text.split()[1]))
    blob[-1] ^= 1
    text = text.split()[0] + " " + base64.b64encode(blob).decode()
if mode == "a key":
    text = (folder / "ca.pub").read_text()
print(text * 2 if mode == "two lines" else text)
"""


def signer(folder: Path, mode: str) -> tuple[str, ...]:
    (folder / "signer.py").write_text(SIGNER)
    return (sys.executable, "-I", str(folder / "signer.py"), mode, str(folder))


def test_a_command_signs_and_its_serial_is_recorded(tmp_path: Path) -> None:
    ca, key = keypair(tmp_path / "ca"), keypair(tmp_path / "key")
    texts, records = issue(tmp_path, key, ca="ca.pub", signer=signer(tmp_path, "well"))
    request = json.loads((tmp_path / "request.json").read_text())
    asked = {"kind": "host", "public_key": key, "key_id": "node01", "signing_key": ca}
    asked |= {"principals": ["node01", "10.0.0.11"], "source_addresses": [], "extensions": {}}
    asked |= {"valid_after": NOW - 3600, "valid_before": NOW + 864000}
    assert request == {**asked, "serial": request["serial"]}
    assert records["host"].serial == request["serial"] // 2 + 1
    assert records["host"].valid_after == NOW - 3600 + 60
    assert records["host"].principals == ["node01", "10.0.0.11"], "as the node compares them"
    assert f"Serial: {records['user'].serial}\n" in signed_by(tmp_path, texts["user"])
    assert Journal(tmp_path).read()["node01"].issued == list(records.values())


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        *(
            (each, f"request: {each}: wanted ")
            for each in ("key", "type", "signing key", "principals")
        ),
        *((each, f"{each}: wanted ") for each in ("critical options", "extensions", "validity")),
        ("serial 0", "found 0"),
        ("one serial", "serial 7: another certificate has it"),
        ("signature", "its signature is wrong"),
        ("a key", "no certificate of one line .a public key."),
        ("two lines", "no certificate of one line"),
        ("garbage", r"no certificate of one line .*: \\x1b\[2J<html>"),
        ("nothing", "no certificate of one line .*: nothing"),
        ("fails", "ssh_trust_signer: .*: exit status 1: permission denied by policy"),
        ("hangs", "ssh_trust_signer: .*: no answer within 2 s"),
    ],
)
def test_deviating_certificates_are_refused(
    mode: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ca", "other"):
        keypair(tmp_path / name)
    if mode == "hangs":
        monkeypatch.setattr(signing, "SIGNER_S", 2.0)
    with pytest.raises(SigningError, match=why):
        issue(tmp_path, keypair(tmp_path / "key"), ca="ca.pub", signer=signer(tmp_path, mode))
    assert Journal(tmp_path).read() == {}


VAULT = """#!{python} -I
import json, sys
path, asked = sys.argv[1:], json.load(sys.stdin)
assert path == ["write", "-field=signed_key", "ssh/sign/cluster", "-"], path
given = {{"public_key", "cert_type", "key_id", "valid_principals", "ttl", "extensions"}}
assert set(asked) - {{"critical_options"}} == given, asked
sources = asked.get("critical_options", {{}}).get("source-address", "")
request = {{
    "kind": asked["cert_type"],
    "public_key": asked["public_key"],
    "key_id": asked["key_id"],
    "principals": asked["valid_principals"].split(","),
    "serial": 1 + len(asked["key_id"]),
    "source_addresses": sources.split(",") if sources else [],
    "extensions": asked["extensions"],
}}
import time
request["valid_after"] = int(time.time()) - 90
request["valid_before"] = request["valid_after"] + 90 + asked["ttl"]
import subprocess
argv = [sys.executable, "-I", {signer!r}, "well", {folder!r}]
sys.exit(subprocess.run(argv, input=json.dumps(request), text=True).returncode)
"""


def test_the_documented_signer_for_vault_signs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = PAGE.read_text(encoding="utf-8").partition("    #!/usr/bin/env python3\n")[2]
    script = tmp_path / "sign"
    script.write_text(lines.partition("\n\n")[0].replace("\n    ", "\n").removeprefix("    "))
    wrapper = tmp_path / "vault"
    (stub := tmp_path / "signer.py").write_text(SIGNER)
    wrapper.write_text(VAULT.format(python=sys.executable, signer=str(stub), folder=str(tmp_path)))
    wrapper.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("tests.unit.ssh_cluster.NOW", int(signing.time.time()))
    keypair(tmp_path / "ca")
    command = (sys.executable, str(script))
    texts, _records = issue(tmp_path, keypair(tmp_path / "key"), ca="ca.pub", signer=command)
    assert set(texts) == {"user", "host"}


def test_a_signer_without_its_public_keys_stops_the_run(tmp_path: Path) -> None:
    keypair(tmp_path / "ca")
    for key in ("", str(tmp_path / "ca")):
        given = {"signer": ["sign"], "user_ca_key": key, "host_ca_key": key}
        with pytest.raises(AuthorityError, match="ssh_trust_signer holds the"):
            ssh_authority.prepare(arguments(tmp_path, **given), write=True)
    assert not (tmp_path / "ssh-ca").exists()


def test_a_writable_public_key_is_refused(tmp_path: Path) -> None:
    keypair(tmp_path / "ca")
    (tmp_path / "ca.pub").chmod(0o646)
    key = str(tmp_path / "ca.pub")
    with pytest.raises(AuthorityError, match=r"ca\.pub: any user can write"):
        ssh_authority.prepare(arguments(tmp_path, user_ca_key=key, host_ca_key=key), write=True)


def test_moving_a_key_into_the_agent_is_no_rotation(tmp_path: Path) -> None:
    keypair(tmp_path / "ca")
    (tmp_path / "ssh-ca").mkdir()
    found = []
    for name in ("ca", "ca.pub", "ca"):
        key = str(tmp_path / name)
        given = arguments(tmp_path, user_ca_key=key, host_ca_key=key)
        result = ssh_authority.prepare(given, write=True)
        path = Path(result["authority"]["private_keys"]["user"])
        found.append((result["changed"], result["authority"]["signs"][:8], path.resolve().name))
    assert found == [
        (True, "supplied", "ca"),
        (False, "supplied", "ca.pub"),
        (False, "supplied", "ca"),
    ]
    # A key file needs no command: the old authority of a rotation to the signer's keys.
    issue(tmp_path, keypair(tmp_path / "key"), signer=("/absent",))


# State that a group shares.

OPS = 54321
ANN, BOB = 1, 2
"""daemon and bin on every system: ssh-keygen asks for the name of its user."""


def as_operator(uid: int, work: Callable[[], None]) -> None:
    """Run a function as another user of the group, in a child process."""
    child = os.fork()
    if not child:
        code = 1
        try:
            os.umask(0o077)
            os.setgroups([OPS])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory as created by `install -d -m 2770 -g OPS`, in one that every user can enter."""
    if os.geteuid():
        pytest.skip("needs root, for other users")
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # only time goes by
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        (Path(folder) / "key.pub").write_text(keypair(Path(folder) / "key"))
        made = Path(folder) / "ssh-ca"
        subprocess.run(["install", "-d", "-m", "2770", "-g", str(OPS), made], check=True)
        yield made


def cycle(folder: Path, generation: int, passphrase: str = "") -> None:
    """The steps of a run: prepare, sign, record, and read again."""
    given = arguments(folder.parent, ca_generation=generation, ca_passphrase=passphrase)
    result = ssh_authority.prepare(dict(given), write=True)
    key = (folder.parent / "key.pub").read_text("ascii")
    journal = Journal(folder)
    for name in ("launcher", "node01"):
        host = result["hosts"][name]
        _texts, records = signed(
            journal, name, result["authority"], key, host, passphrase=passphrase
        )
        serials = [each.serial for each in records.values()]
        journal.trusts(name, result["authority"]["trusted"], "", serials)
    ssh_authority.prepare({**given, "after": True}, write=True)


def test_operators_of_a_group_share_the_state(shared: Path) -> None:
    """The directory was private before."""
    os.chown(shared, ANN, ANN)
    shared.chmod(0o700)
    as_operator(ANN, lambda: cycle(shared, 1))
    subprocess.run(["install", "-d", "-m", "2770", "-g", str(OPS), shared], check=True)
    as_operator(ANN, lambda: cycle(shared, 1))
    as_operator(BOB, lambda: cycle(shared, 1))
    for path in shared.rglob("*"):
        status = path.stat()
        wanted = 0o2770 if path.is_dir() else 0o660
        assert (stat.S_IMODE(status.st_mode), status.st_gid) == (wanted, OPS), path
    for uid in (BOB, ANN, BOB, ANN):
        as_operator(uid, lambda: cycle(shared, 2))
    assert [each.name for each in (shared / "authorities").iterdir()] == ["generation-2"]
    assert Journal(shared).read()["node01"].trusts == ["generation-2"]


@pytest.mark.parametrize("name", ["authorities", "authorities/old", "journal.jsonl", "lock"])
def test_links_in_a_shared_directory_are_refused(shared: Path, name: str) -> None:
    """A member of the group may create it; another member's run, or root's, would follow it."""
    elsewhere = shared.parent / "elsewhere"
    secret = elsewhere / "generation-1/secret"
    secret.parent.mkdir(parents=True)
    secret.write_text("mine")
    secret.chmod(0o600)
    link = shared / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(elsewhere if "authorities" in name else elsewhere / "new")
    with pytest.raises(OSError, match="link in a shared") as caught:
        cycle(shared, 1)
    assert caught.value.filename == str(link)
    assert (secret.stat().st_mode, secret.stat().st_gid) == (0o100600, os.getgid())
    assert list(elsewhere.rglob("*")) == [secret.parent, secret]


def test_others_get_nothing_of_what_is_shared(shared: Path) -> None:
    as_operator(ANN, lambda: cycle(shared, 1, SECRET))
    ca = shared / "authorities/generation-1/user_ca"
    ca.chmod(0o664)
    with pytest.raises(SigningError, match=r"mode 0664 .* chmod 600"):
        signing.private_key(ca, OPS)
    ca.chmod(0o660)
    assert signing.private_key(ca, OPS)
    with pytest.raises(SigningError, match=r"mode 0660 .* chmod 600"):
        signing.private_key(ca, None)
    for mode in (0o2770, 0o770, 0o2750, 0o2777):
        shared.chmod(mode)
        assert Journal(shared).group() == (OPS if mode == 0o2770 else None), oct(mode)
