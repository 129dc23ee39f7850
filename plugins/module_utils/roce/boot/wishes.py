# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the program is told by the last run of the role: the file it reads at boot."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.dataclass import dataclass
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.files import HEADER

from ..request import Request


class WishesError(Exception):
    """The file cannot be understood; the text says what is wrong with it."""


@dataclass(frozen=True)
class Wishes:
    """What every boot has to bring about on this node."""

    interfaces: tuple[str, ...]
    """Rails, by the names that udev gives them."""
    with_rdma: tuple[str, ...]
    """Those that had an RDMA device when this was written: they are waited for."""
    request: Request

    def text(self) -> str:
        content = {
            "": HEADER,
            "rails": list(self.interfaces),
            "with_rdma": list(self.with_rdma),
            **self.request.as_variable(),
        }
        return json.dumps(content, indent=2, sort_keys=True) + "\n"

    @classmethod
    def read(cls, text: str) -> Wishes:
        """Raises WishesError."""
        try:
            content: Mapping[str, Any] = json.loads(text)
            request = Request.read(content)
            names = (_names(content["rails"]), _names(content["with_rdma"]))
        except Exception as error:  # any fault of the file is told the same way
            raise WishesError(f"{type(error).__name__}: {error}") from error
        # A boot takes nothing away from anybody: what is in use then is said, and stays.
        return cls(*names, replace(request, remove_vfs_in_use=False))


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ValueError(f"{value!r} is no list of rails")
    return tuple(str(name) for name in value)
