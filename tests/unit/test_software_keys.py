# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Repository keys: needed only when a layer uses them; messages name the remedy."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.key_files import (
    KeyFileError,
    armour,
    read_keys,
)

from tests.unit.action_plays import ansible
from tests.unit.software_sets import software, value

KEY = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n...\n"


def place(directory: Path, content: bytes = KEY, name: str = "cuda") -> str:
    path = directory / "keys" / f"{name}.asc"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def refused(directory: Path, sha256: str = "", layer: str = "gpu") -> str:
    with pytest.raises(KeyFileError) as caught:
        read_keys(software(repositories__cuda__key_sha256=sha256), layer, directory)
    (finding,) = caught.value.findings
    return finding


def test_a_key_of_the_right_checksum_is_read(tmp_path: Path) -> None:
    found = software(repositories__cuda__key_sha256=place(tmp_path))
    assert read_keys(found, "gpu", tmp_path) == {"cuda": KEY}


def test_a_binary_key_is_armoured_as_gpg_does(tmp_path: Path) -> None:
    digest = place(tmp_path, b"123456789")
    found = read_keys(software(repositories__cuda__key_sha256=digest), "gpu", tmp_path)["cuda"]
    lines = found.decode().splitlines()
    assert base64.b64decode("".join(lines[2:-2])) == b"123456789"
    assert lines[-2] == "=Ic8C"  # CRC-24 is 21cf02
    assert armour(found) == found
    assert {len(line) for line in armour(bytes(96)).splitlines()[2:-2]} == {64}


def test_missing_key_names_its_source(tmp_path: Path) -> None:
    text = refused(tmp_path)
    assert text.startswith(
        "cluster_software.repositories.cuda: the layer gpu needs the key "
        f"{tmp_path}/keys/cuda.asc, which cannot be read: No such file or directory. Get it from "
    )
    for part in ("developer.download.nvidia.com", "gpg --show-keys", "sha256sum", "key_sha256"):
        assert part in text


def test_each_layer_misses_its_own(tmp_path: Path) -> None:
    assert "repositories.doca" in refused(tmp_path, layer="rdma")
    inbox = software(rdma={"source": "inbox"})
    assert read_keys(inbox, "rdma", tmp_path) == {}


def test_an_unchecked_key_is_not_used(tmp_path: Path) -> None:
    place(tmp_path)
    assert "key_sha256 is empty" in refused(tmp_path)


def test_a_private_key_is_refused(tmp_path: Path) -> None:
    content = b"-----BEGIN PGP PRIVATE KEY BLOCK-----"
    assert "which is a private key" in refused(tmp_path, place(tmp_path, content))


def test_another_key_is_refused_with_both_checksums(tmp_path: Path) -> None:
    real, wanted = place(tmp_path), "0" * 64
    assert f"whose SHA-256 is {real}, not {wanted}" in refused(tmp_path, wanted)


PLAY = """\
- name: Keys of both layers
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Read them
      ansible.builtin.assert:
        that: lookup('baremetal.mpi_roce.repository_keys', item.layer, software=set,
          directory=playbook_dir) == item.wanted
      loop:
        - {layer: gpu, wanted: {cuda: "%(key)s"}}
        - {layer: rdma, wanted: {}}
    - name: Ask for a layer that has none
      ansible.builtin.debug:
        msg: "{{ lookup('baremetal.mpi_roce.repository_keys', 'mpi', software=set,
          directory=playbook_dir) }}"
"""


@pytest.mark.slow
def test_roles_have_the_keys_in_base64(tmp_path: Path) -> None:
    wanted = value(
        rdma={"source": "inbox"}, repositories__cuda__key_sha256=place(tmp_path), gdrcopy=""
    )
    play = tmp_path / "play.yml"
    play.write_text(PLAY % {"key": base64.b64encode(KEY).decode()}, encoding="utf-8")
    words = ("-i", "localhost,", "-c", "local", "-e", json.dumps({"set": wanted}), play)
    ran = ansible("ansible-playbook", *words)
    assert "ok=1 " in ran.stdout, ran.stdout + ran.stderr
    assert "['mpi'] is not one layer" in ran.stdout + ran.stderr
