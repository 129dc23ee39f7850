"""The files on a node, to the letter; and the operator's lines, which are never touched."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.files import replace_block
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh import configs
from hypothesis import given
from hypothesis import strategies as st

GOLDEN = Path(__file__).parent / "golden/ssh"
PLACES = configs.Places()
PATTERNS = ("launcher*", "node*", "10.0.0.*")
DROP_IN = PLACES.sshd_drop_in
BASE = Path("/etc/ssh")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sshd_drop_in.conf", configs.sshd_text(PLACES, "mpi")),
        (
            "sshd_drop_in_host_key.conf",
            configs.sshd_text(PLACES, "mpi", "/etc/ssh/ssh_host_ed25519_key"),
        ),
        ("ssh_drop_in.conf", configs.ssh_text(PLACES, "mpi", PATTERNS, revocation=True)),
        ("ssh_drop_in_lists.conf", configs.ssh_text(PLACES, "mpi", PATTERNS, revocation=False)),
        ("known_hosts", configs.authority_lines(["ssh-ed25519 NEW", "ssh-ed25519 OLD"], PATTERNS)),
    ],
)
def test_text_is_as_it_was_agreed(name: str, text: str) -> None:
    assert text == (GOLDEN / name).read_text()


@pytest.mark.parametrize(
    ("main", "found"),
    [
        ("Include /etc/ssh/sshd_config.d/*.conf\n", True),
        ("include sshd_config.d/*.conf\n", True),
        ('  Include "/etc/ssh/sshd_config.d/*.conf"\n', True),
        ("Include=/etc/ssh/sshd_config.d/*.conf\n", True),
        ("Include /etc/other/*.conf /etc/ssh/sshd_config.d/*.conf\n", True),
        ("#Include /etc/ssh/sshd_config.d/*.conf\n", False),
        ("Include /etc/ssh/sshd_config.d/50-*.conf\n", False),
        ("Match User x\nInclude /etc/ssh/sshd_config.d/*.conf\n", False),
        ("Host x\nInclude /etc/ssh/sshd_config.d/*.conf\n", False),
        ("", False),
    ],
)
def test_whether_a_main_file_reads_ours(main: str, found: bool) -> None:
    assert configs.includes(main, DROP_IN, BASE) is found
    assert (configs.with_include(main, DROP_IN, BASE) == main) is found


LINES = st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])))
TEXTS = st.tuples(LINES, st.sampled_from(["", "\n"])).map(lambda each: "\n".join(each[0]) + each[1])


@given(TEXTS)
def test_an_include_comes_and_goes_without_a_trace(main: str) -> None:
    wanted = configs.with_include(main, DROP_IN, BASE)
    assert configs.includes(wanted, DROP_IN, BASE)
    assert configs.with_include(wanted, DROP_IN, BASE) == wanted
    assert configs.without_include(wanted).removesuffix("\n") == main.removesuffix("\n")
    assert wanted.endswith(main)


@given(TEXTS, LINES, LINES)
def test_the_block_of_keys_leaves_the_operator_s_lines(
    text: str, first: list[str], second: list[str]
) -> None:
    changed = replace_block(replace_block(text, first, "ssh"), second, "ssh")
    assert changed == replace_block(text, second, "ssh")
    rest = replace_block(changed, [], "ssh")
    assert rest.removesuffix("\n") == text.removesuffix("\n")
