# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Actions with steps: the step that the task names is performed, any other is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.steps import SteppedAction


def task(action: type[SteppedAction], step: Any) -> Any:
    made: Any = object.__new__(action)
    made._task = SimpleNamespace(
        args={"step": step}, check_mode=False, environment=[], until=None, retries=None
    )
    return made


@pytest.fixture(autouse=True)
def whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ActionBase, "run", lambda *_rest: {"of_ansible": True})


class Talking(SteppedAction):
    MODULE = "baremetal.mpi_roce.talking"

    def steps(self) -> Any:
        return {"say": lambda task_vars: {"changed": False, "said": task_vars}}


def test_the_step_that_the_task_names_is_done() -> None:
    done = task(Talking, "say").run(None, {"a": 1})
    assert done == {"of_ansible": True, "changed": False, "said": {"a": 1}}


@pytest.mark.parametrize("step", [None, "sing"])
def test_another_step_is_refused_with_where_to_look(step: Any) -> None:
    messages = f"^step {step!r} is not known; see ansible-doc baremetal.mpi_roce.talking$"
    with pytest.raises(AnsibleActionFail, match=messages):
        task(Talking, step).run(None, {})
