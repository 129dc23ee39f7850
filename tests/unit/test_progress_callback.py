# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The terminal of a run on many hosts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.callback import progress

TOP = Path(__file__).parents[2]
PLAY = """\
- name: Names of every node
  hosts: all
  gather_facts: false
  tasks:
    - name: Nothing
      ansible.builtin.set_fact: {a: 1}
    - name: Change three
      ansible.builtin.set_fact: {b: 1}
      changed_when: inventory_hostname != 'node04'
    - name: Include
      ansible.builtin.include_tasks: included.yml
    - name: Fail one
      ansible.builtin.set_fact: {c: 1}
      failed_when: inventory_hostname == 'node02'
    - name: Say
      ansible.builtin.debug: {msg: hello}
      when: inventory_hostname == 'node03'
    - name: Items
      ansible.builtin.set_fact: {d: 1}
      loop: [first, second]
      changed_when: item == 'second' and inventory_hostname == 'node01'
    - name: Write
      ansible.builtin.copy: {content: "x\\n", dest: "{{ playbook_dir }}/{{ inventory_hostname }}"}
      when: inventory_hostname == 'node04'
      check_mode: true
- name: Empty
  hosts: absent
"""
HOSTS = "".join(f"node0{n} ansible_connection=local\n" for n in range(1, 5))


def play(folder: Path, callback: str, least: int, *words: str) -> str:
    (folder / "play.yml").write_text(PLAY)
    (folder / "included.yml").write_text("- ansible.builtin.set_fact: {e: 1}\n")
    (folder / "hosts.ini").write_text(HOSTS)
    (folder / "ansible.cfg").write_text("")
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", folder / "play.yml", *words],
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(TOP / "collections"),
            "ANSIBLE_INVENTORY": str(folder / "hosts.ini"),
            "ANSIBLE_STDOUT_CALLBACK": callback,
            "ANSIBLE_FORKS": "1",
            "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
            "BAREMETAL_MPI_ROCE_PROGRESS_HOSTS": str(least),
        },
        cwd=TOP,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stdout
    return done.stdout


@pytest.mark.slow
def test_a_play_is_a_line_and_hosts_that_differ_are_shown(tmp_path):
    printed = play(tmp_path, "baremetal.mpi_roce.progress", 4, "--diff")
    assert "changed: [node[01-03]] (3 hosts)\n" in printed
    assert printed.count("TASK [Change three]") == 1
    assert "fatal: [node02]: FAILED! => {" in printed
    assert 'ok: [node03] => {\n    "msg": "hello"' in printed
    assert "changed: [node01] => (item=second)" in printed and "(item=first)" not in printed
    assert "+x\n\nchanged: [node04]\n" in printed
    line = re.search("^Names of every node: (.*)$", printed, re.MULTILINE)
    assert line and re.sub(r"\d+\.\d s", "T", line[1]) == (
        f"4 of 4 hosts, 4 changed, 1 failed, slowest {line[1].split('slowest ')[1][:6]} T, T"
    )
    recap = printed.partition("PLAY RECAP")[2]
    assert re.search(r"^node\[03-04\] \(2 hosts\) +: ok=7 +changed=1 ", recap, re.MULTILINE)
    assert re.search(r"^node02 +: ok=4 +changed=1 .*failed=1", recap, re.MULTILINE)
    for hidden in ("Nothing", "included:", "skipping", "PLAY [", "ok: [node01]"):
        assert hidden not in printed


@pytest.mark.slow
@pytest.mark.parametrize(("least", "words"), [(5, ()), (0, ("--diff",)), (4, ("-v",))])
def test_few_hosts_and_v_give_the_output_of_the_default_callback(tmp_path, least, words):
    ours, default = (
        re.sub(r"/tmp/\S+", "PATH", play(tmp_path, callback, least, *words))
        for callback in ("baremetal.mpi_roce.progress", "default")
    )
    assert ours == default and "ok: [node01]" in ours


class Display:
    verbosity, columns = 0, 50

    def __init__(self) -> None:
        self.text = ""

    def display(self, text: str, newline: bool = True, **_more: object) -> None:
        self.text += text + "\n" * newline

    banner = display


@pytest.fixture
def started(monkeypatch):
    """A play of 1,000 hosts and its clock."""

    def start(terminal: bool) -> tuple[progress.CallbackModule, Display, list[float]]:
        clock = [100.0]
        monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
        monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
        monkeypatch.setenv("TERM", "xterm")
        plugin = progress.CallbackModule()
        options = {"hosts": 32, "display_ok_hosts": True, "display_skipped_hosts": True}
        monkeypatch.setattr(plugin, "get_option", lambda name: options.get(name))
        monkeypatch.setattr(plugin, "set_option", options.__setitem__)
        plugin._display = plugin._terminal._display = shown = Display()
        inventory = Namespace(get_hosts=lambda _pattern=None: [None] * 1000)
        manager = Namespace(_inventory=inventory)
        plugin.v2_playbook_on_play_start(
            Namespace(
                get_name=lambda: "Names\x1b[2J - every node and rail",
                get_variable_manager=lambda: manager,
                hosts="all",
                strategy="linear",
            )
        )
        return plugin, shown, clock

    return start


def task(name: str) -> Namespace:
    named = {"get_name": lambda: f"r : {name}", "_uuid": name, "action": "x", "loop": None}
    return Namespace(**named, diff=False, no_log=False, check_mode=False)


def answer(plugin, clock, of, number: int, seconds: float, changed: bool = False) -> None:
    host = Namespace(name=f"node{number:04}", get_name=lambda: f"node{number:04}")
    plugin.v2_runner_on_start(host, of)
    clock[0] += seconds
    plugin.v2_runner_on_ok(
        Namespace(_host=host, _task=of, warnings=[], deprecations=[], is_changed=lambda: changed)
    )


def test_a_terminal_shows_progress_in_its_last_line(started):
    plugin, shown, clock = started(terminal=True)
    first = task("Nothing")
    plugin.v2_playbook_on_task_start(first, False)
    for number in range(1000):
        answer(plugin, clock, first, number, 0.3125 if number == 7 else 0.0625)
    assert "\n" not in shown.text
    drawn = shown.text.split("\r\x1b[K")
    title, name, numbers = drawn[1].split(": ")
    assert (title, name, numbers.split(", ")[1]) == ("Names\\x1b[2J", "Nothing", "0.2 s")
    assert numbers.startswith("4 of 1000 ")
    assert 150 < len(drawn) < 300 and max(map(len, drawn)) < Display.columns
    plugin._end_play()
    title, parts = shown.text.rpartition("\r\x1b[K")[2].rstrip("\n").split(": ")
    hosts, slowest, seconds = parts.split(", ")
    assert (title, hosts) == ("Names\\x1b[2J", "1000 of 1000 hosts")
    assert (slowest.split()[1:], seconds) == (["node0007", "0.3", "s"], "1 min 2 s")


def test_a_log_gets_a_line_a_minute_and_one_at_the_end(started):
    plugin, shown, clock = started(terminal=False)
    first = task("Nothing")
    plugin.v2_playbook_on_task_start(first, False)
    for number in range(1000):
        answer(plugin, clock, first, number, 0.15)
    plugin.v2_playbook_on_task_start(task("Next"), False)
    plugin._end_play()
    lines = shown.text.splitlines()
    assert [line.rpartition(", ")[2] for line in lines] == ["1 min 0 s", "2 min 0 s", "2 min 30 s"]
    assert "\r" not in shown.text


def test_hosts_that_a_task_changed_are_one_line(started):
    plugin, shown, clock = started(terminal=True)
    first = task("Change")
    plugin.v2_playbook_on_task_start(first, False)
    for number in range(1000):
        answer(plugin, clock, first, number, 0.001, changed=number != 500)
    plugin.v2_playbook_on_task_start(task("Next"), False)
    plain = shown.text.rpartition("\r\x1b[K")[2]
    assert plain == "TASK [r : Change]\nchanged: [node[0000-0499,0501-0999]] (999 hosts)\n"
