# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Takes the place of Ansible's AnsibleModule in the program of the look.

The options were checked when the layer's module got them from Ansible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn


class Answer(BaseException):
    """Ends a module; no handler of the module for exceptions may keep it."""

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__()
        self.result = result


class AnsibleModule:
    given: Mapping[str, Any] = {}
    """The recorded options of the module that runs next."""
    check_mode = True

    def __init__(self, argument_spec: dict[str, Any], **_others: Any) -> None:
        self.argument_spec = argument_spec
        self.params = {
            name: self.given.get(name, option.get("default"))
            for name, option in argument_spec.items()
        }

    def exit_json(self, **result: Any) -> NoReturn:
        raise Answer(result)

    def fail_json(self, msg: str, **result: Any) -> NoReturn:
        raise Answer({**result, "failed": True, "msg": msg})
