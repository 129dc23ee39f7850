# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A module of a layer that returns its arguments."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule


def main():
    checks = {"type": "list", "elements": "dict"}
    module = AnsibleModule({"layer": {}, "checks": checks, "fail": {}, "deep": {"type": "int"}})
    fail, deep = module.params.pop("fail"), module.params.pop("deep")
    if fail:
        module.fail_json(msg=fail)
    if deep:
        print('{"deep": ' + "[" * deep + "]" * deep + "}")
        return
    facts = {"fail_one": False}  # a variable of the play, which no node may set
    module.exit_json(changed=False, ansible_facts=facts, **module.params)


if __name__ == "__main__":
    main()
