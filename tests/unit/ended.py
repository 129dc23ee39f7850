# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A stand-in for AnsibleModule that raises its result as an exception."""

from __future__ import annotations

from typing import Any, NoReturn


class Ended(Exception):
    def __init__(self, failed: bool, result: dict[str, Any]) -> None:
        super().__init__(failed, result)
        self.failed = failed
        self.result = result


class Module:
    def __init__(self, check_mode: bool = False, **params: Any) -> None:
        self.check_mode = check_mode
        self.params = params

    def exit_json(self, **kwargs: Any) -> NoReturn:
        raise Ended(False, kwargs)

    def fail_json(self, msg: str, **kwargs: Any) -> NoReturn:
        raise Ended(True, {"msg": msg, **kwargs})
