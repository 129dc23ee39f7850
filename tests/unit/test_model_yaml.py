# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""YAML as its author meant it: numbers, merge keys, tags, templates, and characters that look like
others."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.text import printable
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import ModelError, read
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.small_model import MODEL, compiled, edited, refused

EDITS = r"""
rails.mtu: 9e3 -> 6 model.not_a_number rails.mtu '9e3'
rails.count: 2.0 -> 6 model.not_a_number rails.count 2.0
rails.speed_gbps: .inf -> 6 model.not_a_number rails.speed_gbps inf
roce_qos: {roce: {dscp: 0o32}} -> 10 model.not_a_number roce_qos.roce.dscp '0o32'
roce_qos: {roce: {dscp: 08}} -> 10 model.not_a_number roce_qos.roce.dscp '08'
mpi: {uid: 33:20} -> 10 model.number_base mpi.uid '33:20'
rails.numa: [-01, 00] -> 6 model.number_base rails.numa[0] '-01' | 6 model.number_base rails.numa[1] '00'
filesystems: [{name: a, type: nfs, source: 'n:/a', mount: /mnt/a, purpose: scratch, expect: {read_gb_s: 1:30.5}}] -> 10 model.number_base filesystems[0].expect.read_gb_s '1:30.5'
software: {dcgm_profiling: 'true'} -> 10 model.wrong_type software.dcgm_profiling 'true'
launcher.name: !vault l -> 9 model.tag launcher.name '!vault'
vars: {all: {x: !unsafe '{{ y }}'}} -> 10 model.tag vars.all.x '!unsafe'
vars: {all: {x: !!set {a, b}}} -> 10 model.tag vars.all.x '!!set'
vars: {all: {x: !!python/object/apply:os.system [id]}} -> 10 model.tag vars.all.x '!!python/object/apply:os.system'
vars: {all: {x: <<}} -> 10 model.tag vars.all.x '!!merge'
name: !!timestamp zz -> 2 model.impossible_value name 'zz'
name: 2024-02-30 -> 2 model.impossible_value name '2024-02-30'
rails.count: {{ n }} -> 6 model.key_not_text rails.count
vars: {all: {x: {{ y }}}} -> 10 model.key_not_text vars.all.x
domain: {{ a }}.example -> 10 model.not_yaml '{{'
domain: '{{ a }}.example' -> 10 model.template domain '{{ a }}.example'
name: '{% if x %}a{% endif %}' -> 2 model.template name '{% if x %}a{% endif %}'
nodes.count: '{{ n }}' -> 4 model.template nodes.count '{{ n }}'
vars: {'{{ g }}': {x: 1}} -> 10 model.template vars.{{ g }}
rails.pci: [0000:11:00.0, '{#'] -> 6 model.template rails.pci[1] '{#'
name: sma\u200bll -> 2 model.character name ('\u200b', 4)
mpi: {user: m\u00a0pi} -> 10 model.character mpi.user ('\xa0', 2)
software: {kernel: latest} -> 10 model.wrong_form software.kernel 'latest'
leaves.<<: 3 -> 8 model.merge leaves.<<
leaves.<<: [3] -> 8 model.merge leaves.<<
leaves.<<: *nope -> 8 model.not_yaml
leaves.x-a: 1 -> 8 model.unknown_key leaves.x-a
nodes.overrides: {on: {}} -> 4 model.unknown_node nodes.overrides.on 'on'
mpi: {uid:2000} -> 10 model.unknown_key mpi.uid:2000
rails.count: 0x_ -> 6 model.impossible_value rails.count '0x_'
"""  # noqa: E501
"""Edits of the model (small_model.edited), and errors: line, code, path, value."""

AFTER = (
    ("on: 1\n", "10 model.unknown_key on"),
    (".anchor: &a {ports: 1}\n", "10 model.unknown_key .anchor"),
    ("mpi:\n  uid:2000\n", "10 model.not_a_mapping mpi 'uid:2000'"),
    ("mpi:\n\tuid: 2000\n", r"11 model.not_yaml '\t'"),
    ("mpi:\n  uid: 2000\n  \tuser: a\n", r"12 model.not_yaml '\t'"),
    ("domain: a\n \tmpi: {}\n", r"11 model.not_yaml '\t'"),
    ("storage:\n-\t{name: s}\n", r"11 model.not_yaml '\t'"),
    ("---\nname: other\n", "10 model.not_yaml '---'"),
    ("domain: @x\n", "10 model.not_yaml '@'"),
    ("domain: 'a\nmpi: {}\n", "10 model.not_yaml"),
    ('domain: "\\ud800"\n', "10 model.not_yaml"),
    ("domain: a: b\n", "10 model.not_yaml"),
    ("domain\uff1a a\nmpi: {}\n", "11 model.not_yaml '\uff1a'"),
    ("domain:\u00a0a\nmpi: {}\n", r"11 model.not_yaml '\xa0'"),
    ("\ufeffmpi: {}\n", r"10 model.not_yaml '\ufeff'"),
    ("domain: a\x00b\n", r"10 model.control_character ('\x00', 10)"),
    ("# a comment\x85mpi: {uid: 1}\n", r"10 model.control_character ('\x85', 12)"),
    ('domain: "a\\x07b"\n', r"10 model.character domain ('\x07', 2)"),
    ("domain: \u201ca\u201d\n", "10 model.character domain ('\u201c', 1)"),
    (
        "filesystems: [{name: a, type: nfs, source: 'n\u0430s:/a', mount: /m, purpose: scratch}]\n",
        "10 model.mixed_letters filesystems[0].source ('\u0430', 2)",
    ),
    ("mpi: {uid: 2000, uid: 2001}\n", "10 model.key_twice mpi.uid 'uid'"),
    ("x-a: &a {a: 1, a: 2}\n", "10 model.key_twice x-a.a 'a'"),
    ("spines: {<<: {ports: 1}, <<: {ports: 2}}\n", "10 model.key_twice spines.<< '<<'"),
    (f"mpi: {{uid: {'7' * 5000}}}\n", f"10 model.impossible_value mpi.uid '{'7' * 5000}'"),
    (f"mpi: {{uid: 0{'7' * 5000}}}\n", f"10 model.impossible_value mpi.uid '0{'7' * 5000}'"),
)
"""Lines added to the model, and the first error."""
MEANT = (
    ("roce_qos: {roce: {dscp: 0x1a}}\n", "roce_qos: {roce: {dscp: 26}}\n"),
    ("mpi: {uid: 2_001}\n", "mpi: {uid: 2001}\n"),
    ("mpi: {user: on}\n", "mpi: {user: 'on'}\n"),
    ("software: {kernel: 6.8.0}\n", "software: {kernel: '6.8.0'}\n"),
    ("storage:\nfilesystems:\nvars:\nsoftware:\nmpi:\nroce_qos:\nspines:\nasics:\n", ""),
    ("vars:\n  all:\n  compute:\n", "vars: {all: {}, compute: {}}\n"),
    ("x-a: {anything: '{{ x }}'}\nx-b:\n", ""),
    ("domain:\n", "domain: ''\n"),
    (
        "spines: {<<: {count: 9, ports: 8}, count: 2, management_first: 10.0.0.111}\n",
        "spines: {count: 2, ports: 8, management_first: 10.0.0.111}\n",
    ),
    (
        "spines: {count: 2, management_first: 10.0.0.111, <<: [{ports: 8}, {ports: 9}]}\n",
        "spines: {count: 2, ports: 8, management_first: 10.0.0.111}\n",
    ),
)


@pytest.mark.parametrize("case", EDITS.strip().splitlines())
def test_an_edit_is_refused(case: str) -> None:
    edits, _arrow, wanted = case.partition(" -> ")
    edits = edits.encode("ascii", "backslashreplace").decode("unicode_escape")
    assert refused(edited(edits)) == wanted.split(" | ")


@pytest.mark.parametrize(("added", "wanted"), AFTER)
def test_added_lines_are_refused(added: str, wanted: str) -> None:
    assert refused(MODEL + added)[0] == wanted


@pytest.mark.parametrize(("written", "meant"), MEANT)
def test_what_is_meant_is_compiled(written: str, meant: str) -> None:
    assert compiled(MODEL + written) == compiled(MODEL + meant)


def test_anchors_may_precede_and_break_no_rules() -> None:
    text = "x-ports: &ports {ports: 64, system: sonic}\n" + MODEL
    anchored = text.replace("leaves: {count: 2, ports: 64,", "leaves: {<<: *ports, count: 2,")
    assert anchored != text
    assert compiled(anchored) == compiled(edited("leaves.system: sonic"))
    # An error of a merged value is where the value is.
    assert refused(anchored.replace("ports: 64,", "ports: 064,"))[0] == (
        "1 model.number_base leaves.ports '064'"
    )


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_breaks_and_marks_of_other_systems(end: str) -> None:
    assert compiled("\ufeff---\n" + MODEL.replace("\n", end)) == compiled(MODEL)


def test_a_comment_without_a_blank_is_named() -> None:
    with pytest.raises(ModelError) as refusal:
        compiled(edited("nodes.count: 2#nodes"))
    assert "before #" in refusal.value.findings[0].remedy


def test_every_line_with_a_tab_is_named() -> None:
    with pytest.raises(ModelError) as refusal:
        read("cluster.yml", MODEL + "storage:\n-\t{name: s,\n\tmanagement: 10.0.0.20}\n\t# end\n")
    assert "12, 13" in refusal.value.findings[0].remedy


def test_an_override_whose_keys_are_commented_out() -> None:
    assert compiled(edited("nodes.overrides: {node01: }")) == compiled(MODEL)


def test_errors_of_values_and_keys_are_reported_together() -> None:
    text = edited("name: !vault small; leaves.ports; leaves.prots: 64; rails.mtu: 010")
    assert refused(text) == [
        "2 model.tag name '!vault'",
        "6 model.number_base rails.mtu '010'",
        "8 model.unknown_key leaves.prots",
        "8 model.missing_key leaves.ports",
    ]


def test_keys_of_variables_keep_their_types() -> None:
    data = read("c", MODEL + "vars: {all: {names: {2: a, on: b}}}\n").data
    assert data["vars"]["all"]["names"] == {2: "a", True: "b"}


@given(st.from_regex(r"[-+]?0[0-7_]{1,6}", fullmatch=True))
def test_no_octal_number_is_read(text: str) -> None:
    assert refused(edited(f"rails.numa: [{text}, 0]"))[0].split()[1] == "model.number_base"


@given(st.integers(0, 63), st.sampled_from(["d", "_d", "#x", "#b"]))
def test_other_notations_are_read(number: int, form: str) -> None:
    text = f"{number:{form.replace('_', '')}}"
    found = compiled(edited(f"rails.numa: [{text}, 0]")).hosts[0].variables["cluster_rails"]
    assert found[0]["numa"] == number


SMALL = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 9), max_size=4)


@given(st.lists(SMALL, min_size=1, max_size=3), SMALL)
def test_merged_mappings(merged: list[dict[str, int]], own: dict[str, int]) -> None:
    """Own keys win over merged ones, and earlier mappings over later ones."""
    entries = [f"{key}: {value}" for key, value in own.items()]
    text = f"vars: {{all: {{m: {{{', '.join([f'<<: {merged}', *entries])}}}}}}}\n"
    wanted: dict[str, int] = {}
    for each in (*reversed(merged), own):
        wanted.update(each)
    assert read("c", MODEL + text).data["vars"]["all"]["m"] == wanted


def test_merging_is_bounded() -> None:
    lines = ["x-a0: &a0 {k: 1}"]
    lines += [f"x-a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 99)}]}}" for n in range(1, 5)]
    assert "model.aliases" in refused(MODEL + "\n".join(lines))[0]


PIECES = st.sampled_from(
    [
        *(
            "{",
            "}",
            "[",
            "]",
            ": ",
            "- ",
            "\n",
            "\n  ",
            "\t",
            "'",
            '"',
            "#",
            "&a ",
            "*a",
            "<<: ",
            "? ",
        ),
        *(
            "!",
            "!!int ",
            "!!omap ",
            "!!binary ",
            "!vault ",
            "|\n  ",
            ">",
            "%",
            "@",
            "`",
            ",",
            "---\n",
            "...",
        ),
        *(
            "{{ x }}",
            "012",
            "1:30",
            "0b_",
            "2024-13-01",
            ".inf",
            "~",
            "on",
            "\x00",
            "\x85",
            "\ufeff",
        ),
        *(
            "\u200b",
            "\u0430",
            "\u201c",
            "\ud7ff",
            "\U0001f600",
            "x-a: &a {a: 1}\n",
            "vars: ",
            "=",
            "\\",
        ),
    ]
)


@settings(max_examples=200)
@given(st.lists(PIECES, min_size=1, max_size=6).map("".join), st.integers(0, len(MODEL)))
def test_any_text_is_compiled_or_refused(text: str, place: int) -> None:
    try:
        compiled(MODEL[:place] + text + MODEL[place:])
    except ModelError as error:
        assert printable(str(error)) == str(error)
