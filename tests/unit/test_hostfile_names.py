"""Resolution of the names in a hostfile, and reports of failures."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import checks, resolve
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.names import is_host_name

BAD = ["", "-a", "a-", "a_b", "node 1", "node;1", "a..b", "12", "a" * 64, "nöde", "a\n"]


def test_which_names_are_those_of_hosts() -> None:
    assert [name for name in BAD if is_host_name(name)] == []
    assert all(map(is_host_name, ["node01", "a", "A-1", "node01.hpc.example", "1a"]))


class Resolver:
    """A resolver that knows `table` and counts its queries."""

    def __init__(self, table: dict[str, str]) -> None:
        self.table = table
        self.asked: list[str] = []

    def __call__(self, name: str) -> tuple[str, ...]:
        self.asked.append(name)
        return (self.table[name],) if name in self.table else ()


def simulated(count: int) -> dict[str, str]:
    return {f"node{index}": f"10.0.{index // 250}.{index % 250 + 1}" for index in range(count)}


def test_without_a_table_every_name_is_resolved() -> None:
    wanted = simulated(600)
    resolver = Resolver(wanted)
    found = resolve.find_addresses(list(wanted), {}, resolver)
    assert sorted(resolver.asked) == sorted(wanted)
    assert [check.status for check in resolve.name_checks(wanted, found)] == [checks.OK]


def test_of_a_table_a_spread_is_asked_for() -> None:
    wanted = simulated(5000)
    resolver = Resolver(wanted)
    table = {name: {address} for name, address in wanted.items()}
    found = resolve.find_addresses(list(wanted), table, resolver)
    assert len(resolver.asked) == resolve.SPREAD
    assert {"node0", "node4999"} <= set(resolver.asked)
    assert [check.status for check in resolve.name_checks(wanted, found)] == [checks.OK]


def test_a_dead_resolver_is_reported() -> None:
    wanted = simulated(1000)
    resolver = Resolver({})
    found = resolve.find_addresses(list(wanted), {}, resolver)
    assert len(resolver.asked) < 2 * resolve.GIVE_UP
    last = resolve.name_checks(wanted, found)[-1]
    assert (last.name, last.found, last.status) == ("names_resolve", "0 of 1000", checks.FAILED)
    assert f"after {resolve.GIVE_UP} names" in last.reason


def test_a_wrong_address_is_told_with_both_values() -> None:
    """The resolver overrides the table, and is asked for names that the table lacks."""
    resolver = Resolver({"a": "10.0.0.9", "b": "10.0.0.2"})
    found = resolve.find_addresses(["a", "b"], {"a": {"10.0.0.1"}}, resolver)
    wanted = {"a": "10.0.0.1", "b": "10.0.0.2"}
    [check] = resolve.name_checks(wanted, found)
    assert check.line() == "name_resolves a: wanted '10.0.0.1', found '10.0.0.9'"
    [check] = resolve.name_checks(wanted, found, check_mode=True)
    assert (check.status, check.reason) == (checks.PENDING, "a: 10.0.0.9, not 10.0.0.1")


LINES = {
    "hosts: files dns\n": "",
    "passwd: files\nhosts:\tfiles mdns4_minimal [NOTFOUND=return] dns # x\n": "",
    "hosts: myhostname files resolve [!UNAVAIL=return] dns\n": "",
    "#\nhosts: resolve [!UNAVAIL=return] files\n": "resolve [!UNAVAIL=return] files",
    "hosts: dns\x1b[2J\n": "dns\\x1b[2J",
    "hosts: myhostname\n": "myhostname",
    "# hosts: files\n": "no line hosts:",
}


@pytest.mark.parametrize(("text", "found"), [*LINES.items(), (None, "")])
def test_whether_the_file_is_the_first_source(tmp_path: Path, text: str | None, found: str) -> None:
    (tmp_path / "etc").mkdir()
    if text is not None:
        (tmp_path / "etc/nsswitch.conf").write_text(text)
    lines = [number for number, each in enumerate((text or "").splitlines(), 1) if each[0] == "h"]
    check = resolve.source_check(tmp_path)
    assert check.status == ("failed" if found else "ok")
    assert check.subject == "/etc/nsswitch.conf" + "".join(f":{number}" for number in lines)
    assert not found or (check.found == found and check.subject in check.by_hand)


def test_a_slow_lookup_stops_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.1, 1.0, 6.0, 7.0, 11.5])
    monkeypatch.setattr(resolve.time, "monotonic", lambda: next(clock))
    asked: list[str] = []

    def lookup(name: str) -> tuple[str, ...]:
        asked.append(name)
        return ("10.0.0.1",)

    found, check = resolve.timed(["a", "b", "c"], lookup)
    assert (asked, list(found)) == (["a", "b", "b"], ["a", "b"])
    assert (check.subject, check.found, check.status) == ("b", "4.5 s", "failed")


def test_a_name_that_is_fast_at_a_second_look_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 3.0, 3.0, 3.1])
    monkeypatch.setattr(resolve.time, "monotonic", lambda: next(clock))
    found, check = resolve.timed(["a"], lambda name: ("10.0.0.1",))
    assert (found, check.status) == ({"a": ("10.0.0.1",)}, "ok")
