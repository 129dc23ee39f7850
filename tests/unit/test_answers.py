# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Answers of hosts are parsed to limited character sets."""

from __future__ import annotations

import json
import string
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    OK,
    Check,
    as_dicts,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import answers
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.answers import AnswerError, Form
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.hostile import JSON, spoilt

FORMS = {name: form for name, form in vars(answers).items() if isinstance(form, Form)}
PLAIN = set(string.ascii_letters + string.digits + "._/:@+~=-")
GOOD = {
    "SHA256": ["0" * 64],
    "PCI": ["0000:14:00.0", "00010000:01:1f.7"],
    "INTERFACE": ["rail0", "enp1s0f0np0", "mgmt0", "eth0.100"],
    "NAME": ["node01", "leaf01.example.net", "n"],
    "PORT": ["Ethernet8", "swp1s0", "Ethernet2/1", "94:6d:ae:00:00:01"],
    "VERSION": ["6.8.0-79-generic", "3.2.1", "1:2.0~rc1+b1"],
    "CHECK": ["rail_mtu", "sysctl", "link_dscp-map", "x"],
    "PATH": ["/root/.ansible_async/j123.45", "/home/a.b@c/.ansible_async/j1.2", "/etc/.x/..y"],
}
NASTY = st.one_of(
    st.text(),
    st.text(alphabet=string.printable),
    st.text(alphabet="abc09:/.\n\r\t '\"{}%!`$#\\\0\u2028\u0661\uff10"),
    st.integers(),
    st.none(),
    st.lists(st.text(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
)


@pytest.mark.parametrize("name", FORMS)
def test_each_form_takes_what_machines_have(name: str) -> None:
    assert [FORMS[name].of(text, "it") for text in GOOD[name]] == GOOD[name]


LIMITS = {
    "SHA256": ("a" * 64, "a"),
    "PCI": ("a" * 8 + ":00:00.0", ""),
    "INTERFACE": ("a" * 15, "a"),
    "NAME": ("a" * 254, "a"),
    "PORT": ("a" * 64, "a"),
    "VERSION": ("a" * 80, "a"),
    "CHECK": ("a" * 80, "a"),
    "PATH": ("/a" * 16, "/a"),
}
"""The longest value, and one that is too long."""
OTHERS = {
    "SHA256": ["a" * 63, "A" * 64, "g" * 64],
    "PCI": ["000:14:00.0", "0" * 9 + ":14:00.0", "0000:14:20.0", "0000:14:00.8", "0000:14:00-0"],
    "INTERFACE": ["", "-rail0", ".rail0", "rail/0", "rail:0"],
    "NAME": ["", "-a", "a-", "a.", ".a", "_a", "a/b", "a:b", "a@b"],
    "PORT": ["", "-a", "/a", "a@b", "a+b"],
    "VERSION": ["", "-1", "~1", "1/2", "1@2"],
    "CHECK": ["", "Rail", "1rail", "_rail", "rail/1", "rail:1"],
    "PATH": ["", "a/b", "/", "/a/", "/a//b", "/a/../b", "/a/./b", "/..", "/a~b", "/" + 256 * "a"],
}


@pytest.mark.parametrize("name", FORMS)
def test_each_form_ends_where_it_says(name: str) -> None:
    """Length, characters, the newline that `$` accepts, digits of other scripts."""
    form, (longest, more) = FORMS[name], LIMITS[name]
    assert form.fits(longest)
    bad = [*OTHERS[name], *([longest + more] if more else [])]
    for good in GOOD[name]:
        bad += [good + "\n", "\n" + good, good + " ", good + "\0", good + "\u0661"]
        bad += [good.replace("0", "\u0660"), good.replace("1", "\uff11")]
        bad += [good[:-1] + each for each in "\u00e9'\"{}%!`$#\\;&|<>()"]
    assert [text for text in bad if text not in GOOD[name] and form.fits(text)] == []
    assert not form.fits(longest.encode()) and not form.fits([longest])


@given(NASTY)
def test_forms_exclude_special_characters(value: Any) -> None:
    for form in FORMS.values():
        if form.known(value):
            assert set(value) <= PLAIN
            assert ".." not in value.split("/")


@given(NASTY)
def test_a_refusal_is_short_and_only_prints(value: Any) -> None:
    with pytest.raises(AnswerError) as caught:
        Form("nothing", r"(?!)").of(value, "its x")
    text = str(caught.value)
    assert text.startswith("its x is ") and text.isprintable() and len(text) < 300


@given(NASTY)
def test_a_sentence_is_one_line_without_a_template(value: Any) -> None:
    text = answers.sentence(value)
    assert text.isascii() and (text.isprintable() or not text) and len(text) <= 120
    assert not set(text) & set("{}\n\r")


def test_numbers_are_bounded_and_no_truths() -> None:
    assert [answers.whole(each, "n", 7) for each in (0, 7)] == [0, 7]
    assert answers.whole(2, "n", 7, least=2) == 2
    with pytest.raises(AnswerError):
        answers.whole(1, "n", 7, least=2)
    for bad in (8, -1, True, 1.0, "1", None, 10**5000):
        with pytest.raises(AnswerError):
            answers.whole(bad, "n", 7)
    assert [answers.amount(each, 3) for each in (0, 2.5, 3)] == [0, 2.5, 3]
    for odd in (3.1, 4, -1, True, "1", None, float("nan"), float("inf")):
        assert answers.amount(odd, 3) is None
    assert answers.shown(10**18) == "a number of more than 18 digits"
    assert answers.shown(10**18 - 1) == "9" * 18
    assert answers.sentence("x" * 121) == "x" * 120


def test_structures_are_what_they_are_used_as() -> None:
    assert answers.mapping({"a": 1, 2: 3}) == {"a": 1}
    assert answers.mapping([1]) == {} and answers.mapping("ab") == {}
    assert answers.sequence("ab") == () and answers.sequence([1]) == [1]


GOOD_CHECK = as_dicts([Check("mtu", 9000, {"rail0": 9000}, OK, "rail0", "why", at="node02")])[0]


@given(spoilt([GOOD_CHECK]))
def test_invalid_checks_become_one_failed_check(value: Any) -> None:
    """Invalid checks are never dropped."""
    found = [Check(**each) for each in answers.checks(value)]
    assert len(found) >= (len(value) > 0 if isinstance(value, list) else 1)
    for each in found:
        texts = (each.name, each.subject, each.reason, each.at, each.by_hand)
        assert all(text.isprintable() and len(text) < 5000 for text in texts)
        assert each.name == "answer" or answers.CHECK.fits(each.name)
    assert answers.checks([GOOD_CHECK]) == [GOOD_CHECK]


@pytest.mark.parametrize(
    "odd", [{"status": "fine"}, {"status": ["ok"]}, {"name": "a b"}, {"name": 7}, {"at": ["x"]}]
)
def test_a_check_of_another_form_has_failed(odd: dict[str, Any]) -> None:
    found = answers.checks([GOOD_CHECK, {**GOOD_CHECK, **odd}, "text"])
    assert [(each["name"], each["status"]) for each in found] == [("mtu", OK), ("answer", FAILED)]
    assert found[1]["reason"].startswith("2 of its checks ")


def test_checks_and_what_was_found_are_bounded() -> None:
    many = [{**GOOD_CHECK, "subject": str(number)} for number in range(answers.MAX_CHECKS + 5)]
    found = answers.checks(many)
    assert len(found) == answers.MAX_CHECKS + 1 and found[-1]["status"] == FAILED
    (long,) = answers.checks([{**GOOD_CHECK, "found": ["x" * 10**6], "reason": "y" * 10**6}])
    assert len(str(long)) < 3 * answers.MOST_TEXT


@given(JSON)
def test_a_report_is_json_that_every_program_reads(value: Any) -> None:
    json.dumps(answers.finite(value), allow_nan=False)


def test_any_parsing_error_is_an_answer_error() -> None:
    for odd in (lambda: {}["a"], lambda: 1 / 0, lambda: None.x, lambda: "a" + 1, lambda: int("x")):
        with pytest.raises(AnswerError, match="its x "), answers.form_of("its x"):
            odd()  # type: ignore[no-untyped-call]
