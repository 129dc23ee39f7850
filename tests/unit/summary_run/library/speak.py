# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A module of a layer that returns its arguments."""

from __future__ import annotations

import json
import os

from ansible.module_utils.basic import AnsibleModule


def main():
    checks = {"type": "list", "elements": "dict"}
    module = AnsibleModule(
        {"layer": {}, "checks": checks, "fail": {}, "error": {}, "deep": {"type": "int"}}
    )
    fail, deep = module.params.pop("fail"), module.params.pop("deep")
    error = module.params.pop("error")
    if error:
        event = {"msg": error, "help_text": error, "__ansible_type": "Event"}
        summary = {"event": event, "__ansible_type": "ErrorSummary"}
        warning = {"event": event, "__ansible_type": "WarningSummary"}
        answer = {"failed": True, "msg": error, "exception": summary, "warnings": [warning]}
        print(json.dumps(answer), flush=True)
        os._exit(0)
    if fail:
        module.fail_json(msg=fail)
    if deep:
        print('{"deep": ' + "[" * deep + "]" * deep + "}")
        return
    facts = {"fail_one": False}  # a variable of the play, which no node may set
    module.exit_json(changed=False, ansible_facts=facts, **module.params)


if __name__ == "__main__":
    main()
