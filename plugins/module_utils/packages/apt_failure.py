# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reason and remedy of a failed apt-get run, from its output.

dpkg prints a heading for each package. Output of the package's scripts comes before the heading, on
either stream; dpkg's own error follows it, on indented lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..core.commands import Result, output
from ..core.text import one_line, shortened

BEGINS = re.compile(
    r"(?:Preparing to unpack|Unpacking|Setting up|Removing|Purging configuration files for"
    r"|Processing triggers for) (\S+) "
)
ARCHIVE = re.compile(r"(?:\d+-)?([^_]+)_[^_]+_[^_]+\.deb")
NOISE = (
    "Selecting previously ",
    "(Reading database ",
    "debconf: ",
    "ERROR (dkms apport)",
    "ERROR: Cannot create report",
)
REMOVED = re.compile(r"will be REMOVED:\n((?: .*\n)+)")
HEADING = re.compile(r"dpkg: error processing (?:package|archive) (\S+) \(--\w+\):")
ERROR = re.compile(
    r"^(?:E: |Error: |dpkg: un|dpkg: error(?! processing)"
    r"|(?:W|Warning): .*(?:GPG error|signature verification)).*(?:\n .*)*",
    re.MULTILINE,
)
"""apt 3 (Ubuntu 26.04) writes `Error:`. The reason for an unsigned repository is a warning."""
SUMMARY = re.compile(r"(?:E|Error): Sub-process \S+ returned an error code")
TELLS = re.compile(
    r"error|fail|fatal|cannot|denied|unable|no space|no such|not found|consult", re.I
)
UNMET = re.compile(r"unmet dependencies|Unsatisfied dependencies")
LAST_LINES, MAX_LINES, MAX_CHARACTERS = 3, 10, 2500
MAKE_LOG = re.compile(r"(var/lib/dkms/\w[\w.+~-]*/\w[\w.+~-]*/(?:build|log)/make\.log)")
BUILD_ERROR = re.compile(r"\berror:|\bfatal|\*\*\*", re.IGNORECASE)
READ = 64 << 10
AFTERWARDS = re.compile(r"--fix-broken|Internal Error, No file name for")
"""Follow-up messages about unfinished packages, which do not contain the cause."""
REMEDIES = (
    (
        re.compile(
            r"trying to overwrite '([^']{1,250})', which is also in package (\w[\w+.:-]{1,99})\s"
        ),
        r"\1 is in two packages. If nothing needs \2: apt-get remove \2; otherwise leave out the "
        "package that contains it too",
    ),
    (
        re.compile(r"No space left on device|enough free space in"),
        "A file system is full: see df -h, then free space (apt-get clean; old kernels fill /boot)",
    ),
    (
        re.compile(r"Bad return status for module build on kernel: (\S{1,100})"),
        r"The module does not build for kernel \1: choose a version that supports this kernel, or "
        "a kernel that this version supports",
    ),
    (
        re.compile(r"end of file on stdin at conffile prompt"),
        "Keep the files of the node: dpkg --force-confdef --force-confold --configure -a",
    ),
)


@dataclass
class Failed:
    package: str
    said: list[str]
    found: list[str] = field(default_factory=list)

    def lines(self, elsewhere: Sequence[str]) -> list[str]:
        """dpkg's lines about the package. `elsewhere`: lines of its script on the other stream."""
        said = list(dict.fromkeys([*elsewhere, *self.said]))
        telling = [line for line in said if TELLS.search(line)]
        rest = [line for line in said[-LAST_LINES:] if line not in telling]
        scripts = [*telling[-MAX_LINES:], *rest]
        # A failed script has printed the cause itself.
        by_script = any("subprocess" in line for line in self.found)
        return [*scripts, *self.found] if by_script else [*self.found, *scripts]


def refusal(result: Result, root: Path = Path("/")) -> str:
    printed = [_sections(text) for text in (result.stdout, result.stderr)]
    failed = [each for _said, found in printed for each in found]
    # Others only wait for them.
    causes = [x for x in failed if not any("dependency problems" in line for line in x.found)]
    lines = []
    for each in causes or failed:
        told = [line for said, _found in printed for line in said.get(each.package, ())]
        lines += [f"{each.package}: {'; '.join(each.lines(told))}"]
    text = f"{result.stdout}\n{result.stderr}"
    errors = [x for x in map(one_line, ERROR.findall(text)) if x not in "; ".join(lines)]
    if lines:
        errors = [line for line in errors if not SUMMARY.match(line)]
    removed = REMOVED.search(text) if "remove is disabled" in text else None
    if removed:
        errors.append(f"it would remove {one_line(removed.group(1))}")
    found = "; ".join([*lines, *unmet(text), *errors])
    if not found:
        return f"exit status {result.rc}: {one_line(output(result, 1500)) or 'no output'}"
    # Each section has its own limit, so that none displaces another.
    return ". ".join([shortened(found, MAX_CHARACTERS), *_logs(text, root), *_remedies(text)])


def unmet(text: str) -> list[str]:
    """Unmet dependencies, one text per package."""
    _before, *after = UNMET.split(text, maxsplit=1)
    found: list[str] = []
    for line in "".join(after).splitlines()[1:]:
        if re.match(r" \S+ : ", line):
            found.append(one_line(line))
        elif found and line.startswith(" "):  # a further dependency, or an alternative
            found[-1] += f", {one_line(line)}"
        else:
            break
    return found


def _sections(text: str) -> tuple[dict[str, list[str]], list[Failed]]:
    about: dict[str, list[str]] = {}
    failed: list[Failed] = []
    said: list[str] = []
    inside = False
    for line in text.splitlines():
        begins, heading = BEGINS.match(line), HEADING.search(line)
        if heading:
            failed.append(Failed(_name(heading.group(1)), said))
            said, inside = [], True
        elif inside and line.startswith(" "):
            failed[-1].found.append(one_line(line))
        elif begins:
            said, inside = about.setdefault(_name(begins.group(1)), []), False
        elif line.strip() and not line.startswith(NOISE):
            inside = False
            said.append(one_line(line))
    return about, failed


def _name(word: str) -> str:
    archive = ARCHIVE.fullmatch(word.rpartition("/")[2])
    return archive.group(1) if archive else word.partition(":")[0]


def _logs(text: str, root: Path) -> Iterator[str]:
    """Lines of each log that DKMS names: those with errors, otherwise the last ones."""
    for name in dict.fromkeys(MAKE_LOG.findall(text)):
        path = root / name
        if not path.is_file():
            continue
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - READ))
            lines = stream.read(READ).decode("utf-8", "replace").splitlines()
        yield shortened(f"make.log: {'; '.join(build_errors(lines))}", MAX_CHARACTERS // 4)


def build_errors(log: Sequence[str]) -> list[str]:
    """The first errors of a build, otherwise its last lines, as a log ends with lines of make."""
    errors = [line for line in log if BUILD_ERROR.search(line)] or log[-LAST_LINES:]
    return [one_line(line) for line in errors[:LAST_LINES]]


def _remedies(text: str) -> Iterator[str]:
    for pattern, remedy in REMEDIES:
        found = pattern.search(text)
        if found:
            yield one_line(found.expand(remedy))
