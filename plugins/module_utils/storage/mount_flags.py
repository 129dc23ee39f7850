# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Options of a mount that are no file system's own: the kernel keeps them per mount.

They alone can be changed while it is mounted (`mount -o remount,bind`), without a word to its
server. All others belong to the connection with it, which the kernel does not exchange (EINVAL).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from .mount_kind import Difference
from .mounted import Mount

OPPOSITE = {
    "nosuid": "suid",
    "nodev": "dev",
    "noexec": "exec",
    "nodiratime": "diratime",
    "nosymfollow": "symfollow",
}
"""The kernel tells the first of each, and nothing for the second."""
ACCESS_TIMES = ("noatime", "relatime", "strictatime", "atime")
"""One of these; the kernel tells `noatime`, `relatime` or nothing."""
WRITING = ("ro", "rw")
FLAGS = frozenset([*OPPOSITE, *OPPOSITE.values(), *ACCESS_TIMES, *WRITING])

UNTOLD = frozenset(
    [
        *("defaults", "auto", "noauto", "nofail", "user", "nouser", "users", "nousers", "group"),
        *("owner", "_netdev", "bg", "fg", "retry", "comment", "silent", "loud", "bind", "rbind"),
    ]
)
"""Words of mount(8) and of its helpers: the kernel never hears them."""


def name_of(word: str) -> str:
    return word.partition("=")[0]


def is_untold(word: str) -> bool:
    name = name_of(word)
    return name in UNTOLD or name.startswith(("x-", "X-"))


def difference(word: str, mount: Mount) -> Optional[Difference]:
    """What of a flag does not run; None where it does, or where the word is no flag."""
    if word in WRITING:
        # A file system that is read-only is so through every mount of it.
        found = "ro" if "ro" in mount.flags or "ro" in mount.options else "rw"
    elif word in OPPOSITE or word in OPPOSITE.values():
        no = word if word in OPPOSITE else next(n for n, yes in OPPOSITE.items() if yes == word)
        found = no if no in mount.flags else OPPOSITE[no]
    elif word in ACCESS_TIMES:
        found = next((each for each in ACCESS_TIMES if each in mount.flags), "strictatime")
        if word == "atime" and found == "relatime":  # the kernel's own choice of how
            found = "atime"
    else:
        return None
    return None if found == word else Difference(word, word, found)


def unasked_read_only(wanted: Sequence[str], mount: Mount) -> Optional[Difference]:
    """Whoever says nothing wants to write: `ro` that was taken out, or that somebody set by hand.

    A disk that the kernel made read-only is none of that: no mount of it would help.
    """
    if any(word in WRITING for word in wanted) or "ro" not in mount.flags:
        return None
    return Difference("rw", "rw", "ro")


def changeable(differences: Sequence[Difference], mount: Mount) -> bool:
    """Whether all of them are flags of this mount alone."""
    return all(
        each.option in FLAGS and not (each.wanted == "rw" and "ro" in mount.options)
        for each in differences
    )


def remount_words(wanted: Sequence[str], mount: Mount) -> list[str]:
    """For `mount -o remount,bind`: the wanted flags, and those that run and nobody spoke of."""
    asked = [word for word in wanted if word in FLAGS]
    spoken = set(asked)
    for word in asked:
        spoken |= {no for no, yes in OPPOSITE.items() if yes == word}
        if word in ACCESS_TIMES:
            spoken |= set(ACCESS_TIMES)
        if word in WRITING:
            spoken |= set(WRITING)
    if not spoken & set(WRITING):
        asked.append("rw")
        spoken |= set(WRITING)
    kept = [each for each in mount.flags if each in FLAGS and each not in spoken]
    return [*kept, *asked]
