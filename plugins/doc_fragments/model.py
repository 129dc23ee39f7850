# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every key of a cluster model as an option of the inventory plugin, from the schema."""

from __future__ import annotations

import json
import re
from typing import Any

from ..plugin_utils.model.schema import MODEL
from ..plugin_utils.schema.kinds import Key, section_in

_TYPES = {
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "string": "str",
    "array": "list",
    "object": "dict",
}


def _option(key: Key) -> dict[str, Any]:
    """One key in the form of DOCUMENTATION."""
    found = {"description": _marked(key.text()), **_typed(key.kind.json())}
    if key.required:
        found["required"] = True
    elif "default" in (shown := key.json()):
        found["default"] = shown["default"]
    if section := section_in(key.kind):
        found["suboptions"] = {below.name: _option(below) for below in section.keys}
    return found


def _typed(found: dict[str, Any]) -> dict[str, Any]:
    """The type in Ansible's words; `raw` if values of several types are allowed, but none of them
    is a section."""
    for other in found.get("anyOf", ())[1:]:
        found = found["anyOf"][0] if other == {"type": "null"} else {}
    if choices := found.get("enum"):
        texts = [one for one in choices if isinstance(one, str)]
        return {"type": "str" if texts else "int", "choices": texts or choices}
    types = found.get("type", "")
    types = [types] if isinstance(types, str) else [one for one in types if one != "null"]
    if "object" in types:
        return {"type": "dict"}
    if types[1:] and set(types) != {"string", "number"}:
        return {"type": "raw"}
    typed = {"type": _TYPES.get(types[0], "raw")}
    if typed["type"] == "list":
        typed["elements"] = _typed(found["items"])["type"]
    return typed


def _marked(text: str) -> str:
    """Markdown in the markup of Ansible's documentation."""

    def code(match: re.Match[str]) -> str:
        escaped = re.sub(r"([)\\])", r"\\\1", match[1])
        return f"V({escaped})"

    return re.sub(r"`([^`]*)`", code, re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text))


class ModuleDocFragment:
    # JSON is YAML, and the fastest to write: Ansible reads it whenever it loads the plugin.
    DOCUMENTATION = json.dumps({"options": {key.name: _option(key) for key in MODEL.keys}})
