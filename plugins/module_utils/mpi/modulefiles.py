# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Modulefiles for unpacked MPIs, read by environment-modules and Lmod.

Each has a file of variables, whose name programs on other nodes get (`orted` by a parameter,
Hydra's proxy from `hydra-ssh`): they read no modulefile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..core.checks import OK, Check, differs
from ..core.files import HEADER, FilePlan
from ..core.part import Node, Plan, Verdict
from .environment import ENVIRONMENT_FILE, LAUNCH_AGENT, environment_text
from .launch.launcher import OPEN_MPI, Launcher
from .unpacked import PREFIXES

PLACES = (
    ("etc/environment-modules/modules", False),
    ("etc/lmod/modules", True),
    ("etc/modulefiles", False),
    ("etc/modulefiles", True),
)
"""Directories of modulefiles, and whether these are written in Lua: environment-modules and Lmod on
Debian, then both on EL, where Lmod prefers Lua. The packages add them to MODULEPATH.
"""
LUA_NAME = ".lua"
OWN = "etc/baremetal-mpi-roce/modules"
FILE = "MPI_ROCE_MODULE"
"""Variable with the name of the variable file, which the profile reads after the host's file."""
AGENT = "OMPI_MCA_orte_launch_agent"
PATHS = {"MPI_ROCE_BIN": "PATH", "MPI_ROCE_LIB": "LD_LIBRARY_PATH", "MPI_ROCE_PYTHON": "PYTHONPATH"}


@dataclass(frozen=True)
class Modulefiles:
    """Modulefile of the MPI in `prefix`; modulefiles of former MPIs stay as long as their
    directories."""

    prefix: str
    variables: Mapping[str, str]
    launcher: Launcher
    wanted: bool
    keep_former: bool

    def plan(self, node: Node) -> Plan:
        files = []
        name = Path(self.prefix).name
        if self.wanted and name:
            files.append(node.file(f"{OWN}/{name}", environment_text(self.variables)))
            for directory, lua in self._places(node):
                text = _modulefile(name, self.variables, self.launcher, lua)
                files.append(node.record(f"{directory}/mpi/{name}{LUA_NAME if lua else ''}", text))
        return Plan([*files, *self._stale(node, name)])

    def _stale(self, node: Node, name: str) -> list[FilePlan]:
        found = []
        places = dict.fromkeys(f"{each}/mpi" for each, _lua in self._places(node))
        for directory in (OWN, *places):
            for path in sorted(node.path(directory).glob("*")):
                own = path.name.removesuffix(LUA_NAME)
                retained = self.keep_former and node.path(f"{PREFIXES}/{own}").is_dir()
                if self.wanted and (own == name or retained):
                    continue
                if HEADER in (node.read(f"{directory}/{path.name}") or ""):
                    found.append(node.file(f"{directory}/{path.name}", None))
        return found

    def _places(self, node: Node) -> list[tuple[str, bool]]:
        return [path for path in PLACES if node.path(path[0]).is_dir()]

    def verify(self, node: Node) -> Verdict:
        if not self.wanted:
            return Verdict([])
        places = ", ".join(dict.fromkeys(f"/{path}" for path, _lua in self._places(node)))
        reason = "" if places else "install environment-modules or lmod, then run again"
        status = OK if places else differs(node.check_mode)
        return Verdict([Check("mpi_modules", "a directory", places or "none", status, "", reason)])


TCL = """\
#%Module1.0
# {header}
module-whatis {{MPI {name}}}
conflict mpi
{paths}
{own}
set values {{{values}}}
if {{[module-info mode remove]}} {{
  set stream [open {{{environment}}}]
  set text [read $stream]
  close $stream
  foreach {{key value}} $values {{
    if {{[regexp -line "^$key=(.*)$" $text all default]}} {{
      unsetenv $key $default
    }} else {{
      setenv $key $value
    }}
  }}
}} else {{
  foreach {{key value}} $values {{
    setenv $key $value
  }}
}}
"""
"""Unloading restores the host's value: pushenv loses it in `module switch`."""
LUA = """\
-- {header}
whatis("MPI {name}")
conflict("mpi")
{paths}
{own}
{values}
"""


def _modulefile(name: str, variables: Mapping[str, str], launcher: Launcher, lua: bool) -> str:
    """Lmod gets a modulefile in Lua, because its pushenv in Tcl does not restore values."""
    file = f"/{OWN}/{name}"
    own = [(FILE, file)]
    if launcher is OPEN_MPI:
        own.append((AGENT, f"env {FILE}={file} {LAUNCH_AGENT}"))
    paths = [(PATHS[key], value) for key, value in variables.items() if key in PATHS]
    others = [(key, value) for key, value in variables.items() if key not in PATHS]

    def lines(command: str, pairs: Iterable[tuple[str, str]]) -> str:
        form = '{}("{}", "{}")' if lua else "{} {} {{{}}}"
        return "\n".join(form.format(command, *pair) for pair in pairs)

    values = " ".join(f"{{{word}}}" for pair in others for word in pair)
    return (LUA if lua else TCL).format(
        header=HEADER,
        name=name,
        paths=lines("prepend_path" if lua else "prepend-path", paths),
        own=lines("setenv", own),
        values=lines("pushenv", others) if lua else values,
        environment=ENVIRONMENT_FILE,
    )
