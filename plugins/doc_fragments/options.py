# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Options of every module, as layers/*.yml declare them: a fragment named like the module."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

import yaml

KEYS = ("type", "elements", "choices", "required", "no_log", "default")
ROLE, DOCUMENTATION, ARGUMENTS = "role", "DOCUMENTATION", "argument_spec"
Option = dict[str, Any]
Layer = dict[str, Any]


def read() -> tuple[Mapping[str, list[str]], dict[str, Layer]]:
    """The order of layers/order.yml, and every layer by its tag, with its shared options."""
    order, shared = _loaded("order"), _loaded("shared")
    layers = {tag: {"tag": tag, **_loaded(tag)} for tags in order.values() for tag in tags}
    for layer in layers.values():
        for options in (layer.get("options", {}), *layer.get("modules", {}).values()):
            for key, option in options.items():
                own = {"shared": True} if option == "shared" else option or {}
                options[key] = {**(shared[key] if "shared" in own else {}), **own}
    return order, layers


def _loaded(name: str) -> Any:
    path = Path(__file__).parents[2] / f"layers/{name}.yml"
    return yaml.load(path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def name_of(layer: Layer, key: str) -> str:
    """The variable of an option: ROLE_KEY, but variables of the model keep their names."""
    return key if layer["options"][key].get("model") else f"{layer['role']}_{key}"


def _described(text: Any, layer: Layer, arguments: Mapping[str, Any]) -> Any:
    """The text, with O(option) as the module's option if it has one, or else as the role's."""
    if isinstance(text, list):
        return [_described(part, layer, arguments) for part in text]

    def referred(match: re.Match[str]) -> str:
        key, value = match.group(1), match.group(2) or ""
        if key in arguments:
            return match.group(0)
        return f"{'C' if arguments else 'O'}({name_of(layer, key)}{value})"

    return re.sub(r"\bO\((\w+)(=[^)]*)?\)", referred, text)


def declared(
    option: Option, layer: Layer, form: str, known: Optional[Mapping[str, Any]] = None
) -> Option:
    """One option in a role's specification, a module's DOCUMENTATION or its argument_spec."""
    found = {key: option[key] for key in KEYS if option.get(key) is not None}
    if not option.get("required"):
        found.pop("required", None)
    if form == DOCUMENTATION or (form == ROLE and not option.get("no_log")):
        found.pop("no_log", None)
    # With a default, null would not pass the type.
    templated = "{{" in str(option.get("default"))
    if option.get("nullable") or option.get("required") or templated:
        found.pop("default", None)
    if form != ARGUMENTS:
        found["description"] = _described(option["text"], layer, known or {})
        found.update({"version_added": option["since"]} if "since" in option else {})
    if option.get("suboptions"):
        found["suboptions" if form == DOCUMENTATION else "options"] = {
            name: declared(sub, layer, form, known) for name, sub in option["suboptions"].items()
        }
    return found


def arguments_of(layer: Layer, module: str) -> dict[str, Option]:
    """Every option of a module: the role's option, with the differences."""
    options = layer.get("options", {})
    own = layer["modules"][module].items()
    return {key: {**options.get(option.get("of", key), {}), **option} for key, option in own}


def _documented(layer: Layer, module: str) -> str:
    options = arguments_of(layer, module)
    found = {key: declared(of, layer, DOCUMENTATION, options) for key, of in options.items()}
    return str(yaml.safe_dump({"options": found}, sort_keys=False))


class ModuleDocFragment:
    """Attributes are named like the modules, in capitals."""


for _layer in read()[1].values():
    for _module in _layer.get("modules", {}):
        setattr(ModuleDocFragment, _module.upper(), _documented(_layer, _module))
