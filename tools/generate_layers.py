#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Generate everything that layers/*.yml declare; run this after a change there.

    python tools/generate_layers.py            # writes the files that differ
    python tools/generate_layers.py --check    # names them, and exits with 1 if there are any

The program generates the roles' argument specifications and defaults, the arguments of modules, the
plays, the layer table of docs/architecture.md, docs/checks.md, plugin_utils/layers.py and
plugin_utils/pages/assets/meanings.json.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.baremetal.mpi_roce.plugins.doc_fragments.options import (  # noqa: E402
    ARGUMENTS,
    ROLE,
    Layer,
    arguments_of,
    declared,
    name_of,
    read,
)

COMMAND = "tools/generate_layers.py"
COLLECTION = "baremetal.mpi_roce"
CALL = (
    rf"{COLLECTION}\.(?P<module>\w+):.*\n(?=(?P<indent> +))(?:(?P=indent).*\n)*?"
    r"(?P<mark>(?P=indent)# Generated from layers/.*\n)(?:(?P=indent)\w+: .*\n)*"
)
PYTHON_WIDTH = 100
YAML_WIDTH = 120


class Dumper(yaml.SafeDumper):
    """Quotes templates in double quotes, since their own strings are in single ones."""


Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style='"' if "{{" in text else None
    ),
)


# YAML that people read: one line where it fits.


def flow(value: Any) -> str:
    text = yaml.dump(
        value, Dumper=Dumper, default_flow_style=True, sort_keys=False, width=sys.maxsize
    )
    return text.removesuffix("\n").removesuffix("\n...")


def folded(text: str, first: str, width: int, following: str | None = None) -> list[str]:
    following = first if following is None else following
    wrapper = textwrap.TextWrapper(width, initial_indent=first, subsequent_indent=following)
    wrapper.break_long_words = wrapper.break_on_hyphens = False
    return wrapper.wrap(text)


def entry(key: str, value: Any, indent: str, width: int, block: bool = False) -> Iterator[str]:
    """Lines of one key; `block` puts each key of a mapping on a separate line."""
    yield from _entry(f"{indent}{key}:", value, indent + "  ", width, block)


def _entry(head: str, value: Any, below: str, width: int, block: bool = False) -> Iterator[str]:
    text = flow(value)
    line, inner = f"{head} {text}", f"{below}{text}"
    if len(line) <= width and not block:
        yield line
    elif isinstance(value, dict) and len(inner) <= width and not block:
        yield from (head, inner)
    elif isinstance(value, (dict, list)):
        yield head
        items = value.items() if isinstance(value, dict) else [("", item) for item in value]
        for name, item in items:
            start = f"{below}{name}:" if isinstance(value, dict) else f"{below}-"
            yield from _entry(start, item, below + "  ", width)
    elif text[0] in "'\"":
        yield from (f"{head} >-", *folded(str(value), below, width))
    else:
        yield from folded(text, f"{head} ", width, below)


def comment(text: str, indent: str = "") -> list[str]:
    return folded(text, f"{indent}# ", PYTHON_WIDTH) if text else []


# Options of a role and of its modules.


def role_specification(layer: Layer) -> str:
    main = {
        "short_description": layer["title"],
        "description": layer["description"],
        "options": {
            name_of(layer, key): declared(option, layer, ROLE)
            for key, option in layer["options"].items()
        },
    }
    lines = ["---", f"# Generated from layers/{layer['tag']}.yml by {COMMAND}.", "argument_specs:"]
    for point, spec in {"main": main, **layer.get("entry_points", {})}.items():
        lines += entry(point, spec, "  ", YAML_WIDTH, block=True)
    text = "\n".join([*lines, ""])
    if "    options: main\n" in text:
        text = text.replace("    options:\n", "    options: &options\n", 1)
    return text.replace("    options: main\n", "    options: *options\n")


def role_defaults(layer: Layer) -> str:
    lines = [
        "---",
        f"# Generated from layers/{layer['tag']}.yml by {COMMAND}.",
        f"# Each option's meaning: ansible-doc -t role {COLLECTION}.{layer['role']}",
    ]
    for key, option in layer["options"].items():
        if option.get("model") or "default" not in option:
            continue
        notes = option.get("notes", {})
        lines += comment(option.get("note", ""))
        for line in entry(name_of(layer, key), option["default"], "", YAML_WIDTH, bool(notes)):
            lines += comment(notes.get(line.strip().partition(":")[0], ""), "  ")
            lines.append(line)
    return "\n".join([*lines, ""])


def module_source(layer: Layer, module: str) -> str:
    """The module with its arguments, if it has any: some actions need none."""
    source = (ROOT / f"plugins/modules/{module}.py").read_text(encoding="utf-8")
    options = arguments_of(layer, module).items()
    arguments = {name: declared(option, layer, ARGUMENTS) for name, option in options}
    spec = formatted(f"ARGUMENTS = {arguments!r}\n")
    pattern = r"^ARGUMENTS = \{(?:\}|\n(?: .*\n)*\})\n"
    return re.sub(pattern, lambda _: spec, source, flags=re.MULTILINE)


def tasks_source(layer: Layer, path: Path) -> str:
    """Tasks of the role; below a mark, the options of the role that the call lacks above it."""
    source = path.read_text(encoding="utf-8")

    def call(match: re.Match[str]) -> str:
        module, indent, mark = match["module"], match["indent"], match["mark"]
        above, lines = match[0].partition(mark)[0], []
        for name, own in layer["modules"][module].items():
            key = own.get("of", name)
            if key not in layer["options"] or f"\n{indent}{name}:" in above:
                continue
            option, filters = layer["options"][key], ""
            if option.get("nullable"):
                filters = " | default(omit, true)"
            elif option.get("model") and not own.get("required", option.get("required")):
                filters = " | default(omit)"
            lines.append(f'{indent}{name}: "{{{{ {name_of(layer, key)}{filters} }}}}"\n')
        return above + mark + "".join(lines)

    return re.sub(CALL, call, source, flags=re.MULTILINE)


def formatted(source: str) -> str:
    """Python in the layout of the project's formatter."""
    command = f"{sys.executable} -m ruff format --config {ROOT}/pyproject.toml -".split()
    return subprocess.run(command, input=source, text=True, capture_output=True, check=True).stdout


# Plays, pages and the table that Python reads: layers/templates/.


def renamed(layers: list[Layer]) -> dict[str, str]:
    return {
        f"{layer['role']}_{option['renamed_from']}": name_of(layer, key)
        for layer in layers
        for key, option in layer.get("options", {}).items()
        if "renamed_from" in option
    }


def check_names(names: str) -> str:
    return names if "`" in names else re.sub(r"\w+", r"`\g<0>`", names)


def meanings(layers: list[Layer]) -> str:
    """What each check means, as in docs/checks.md, for the pages of reports. A name that ends with
    `_` is the beginning of names."""
    found: dict[str, dict[str, list[str]]] = {}
    for layer in layers:
        for names, check in layer.get("checks", {}).items():
            listed = re.findall(r"`(\w+)`", names) or re.findall(r"\w+", names)
            meaning = [check["holds"], check.get("otherwise", "")]
            found.setdefault(layer["tag"], {})[" ".join(listed)] = meaning
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def region(path: str, text: str) -> str:
    """The page with `text` between its markers."""
    page = (ROOT / path).read_text(encoding="utf-8")
    pattern = r"(<!-- generated[^\n]*-->\n).*?(<!-- end -->)"
    return re.sub(pattern, lambda match: match[1] + text + match[2], page, flags=re.DOTALL)


def generated() -> dict[str, str]:
    """The desired content of every generated file, by path."""
    order, by_tag = read()
    layers, of_site = list(by_tag.values()), [by_tag[tag] for tag in order["site"]]
    looked = [layer for layer in of_site if "look" in layer["play"]]
    pulled = [x for x in looked if x["play"]["look"] == "host" and "current" not in x["play"]]
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ROOT / "layers/templates"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    templates.filters.update(comment=comment, check_names=check_names)

    def rendered(template: str, **values: Any) -> str:
        found = {"site": of_site, "layers": layers, "looked": looked, "pulled": pulled, **values}
        return templates.get_template(template).render(found)

    files: dict[str, str] = {}
    for layer in layers:
        if "role" in layer:
            role = f"roles/{layer['role']}"
            files[f"{role}/meta/argument_specs.yml"] = role_specification(layer)
            files[f"{role}/defaults/main.yml"] = role_defaults(layer)
            for path in sorted((ROOT / role / "tasks").glob("*.yml")):
                files[f"{role}/tasks/{path.name}"] = tasks_source(layer, path)
        for module in layer.get("modules", {}):
            files[f"plugins/modules/{module}.py"] = module_source(layer, module)
    for layer in of_site:
        files[f"playbooks/{layer['tag']}.yml"] = rendered("layer.yml.j2", layer=layer)
    for name in ("site", "verify", "look", "pull"):
        files[f"playbooks/{name}.yml"] = rendered(f"{name}.yml.j2")
    for page in ("docs/architecture.md", "docs/checks.md"):
        files[page] = region(page, rendered(f"{Path(page).name}.j2"))
    table = rendered("layers.py.j2", order=order, renamed=renamed(layers))
    files["plugins/plugin_utils/pages/assets/meanings.json"] = meanings(layers)
    return {**files, "plugins/plugin_utils/layers.py": formatted(table)}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    differing = 0
    for name, text in generated().items():
        path = ROOT / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            differing += 1
            sys.stdout.write(f"{name}\n")
            if not check:
                path.write_text(text, encoding="utf-8")
    return int(check and differing > 0)


if __name__ == "__main__":
    sys.exit(main())
