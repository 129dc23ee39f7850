# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The settings of `node-check` on one node: promises of the model, thresholds, consent to drain."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Optional

from ..core.files import HEADER
from ..rails.arp import ARP_DEFAULTS

THRESHOLDS: Mapping[str, float] = {
    "link_downs_per_hour": 3,
    "link_downs_per_day": 10,
    "symbol_errors_per_hour": 120,
    "free_percent": 3,
    "gpu_memory_mib": 2048,
    "shm_mib": 1024,
}
"""Each is the greatest accepted value, except the least free space. NVSentinel escalates 3 link
events and 120 symbol errors in an hour (docs of NVIDIA/NVSentinel, 5550aa3c); the others are ours.
"""
RAILS: Mapping[str, Any] = {
    "backend": "auto",
    "routing": "source",
    "table_base": 1000,
    "priority_base": 10000,
    "networks": [],
    "arp": dict(ARP_DEFAULTS),
}
"""Options of the role roce_rails, with its defaults."""


class SettingsError(ValueError):
    """The settings cannot be used; the text names the key and the remedy."""


@dataclass(frozen=True)
class Settings:
    """`rails` and `gpus` are those of the model; `gpu_driver` is empty where the model has no
    driver, as then no GPU is looked at."""

    host: str = ""
    rails: Sequence[Mapping[str, Any]] = ()
    rails_options: Mapping[str, Any] = field(default_factory=dict)
    management: Mapping[str, Any] = field(default_factory=dict)
    gpus: Sequence[Mapping[str, Any]] = ()
    gpu_driver: Mapping[str, Any] = field(default_factory=dict)
    gpu_health: Mapping[str, Any] = field(default_factory=dict)
    gpudirect: str = "auto"
    mounts: Sequence[str] = ()
    """Mount points of others that must be mounted and respond."""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    """Names of checks that only warn, in addition to those of verdict.py."""
    interval_s: int = 300
    drain: bool = False
    max_drained_share: float = 0.1
    textfile: str = ""

    def __post_init__(self) -> None:
        for each in fields(self):
            kind = type(each.default_factory() if callable(each.default_factory) else each.default)
            accepted = {tuple: (list, tuple), float: (int, float)}.get(kind, (kind,))
            value = getattr(self, each.name)
            if not isinstance(value, accepted) or (kind is not bool and isinstance(value, bool)):
                raise SettingsError(f"{each.name}: {value!r} is no {kind.__name__}")
        unknown = {*self.thresholds} - {*THRESHOLDS} | {*self.rails_options} - {*RAILS}
        if unknown:
            raise SettingsError(f"{', '.join(sorted(unknown))}: unknown")
        for name, value in self.thresholds.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
                raise SettingsError(f"thresholds.{name}: {value!r} must be a number from 0")
        if not 0 < self.max_drained_share <= 1:
            raise SettingsError(f"max_drained_share: {self.max_drained_share} must be in (0, 1]")
        if not 30 <= self.interval_s <= 86400:
            raise SettingsError(f"interval_s: {self.interval_s} must be from 30 to 86400")
        odd = [point for point in (*self.mounts, self.textfile or "/") if not _path(point)]
        if odd:
            raise SettingsError(f"{odd[0]!r}: must be an absolute path")

    @classmethod
    def parse(cls, text: str) -> Settings:
        """Raises SettingsError."""
        try:
            given = json.loads(text)
            given.pop("", None)
            return cls(**given)
        except (ValueError, TypeError, AttributeError) as error:
            raise SettingsError(f"{error}. Run the role node_check") from error

    def text(self) -> str:
        return json.dumps({"": HEADER, **asdict(self)}, indent=2, sort_keys=True) + "\n"

    def threshold(self, name: str) -> float:
        return self.thresholds.get(name, THRESHOLDS[name])

    def rails_option(self, name: str) -> Any:
        value: Optional[Any] = self.rails_options.get(name)
        return RAILS[name] if value is None else value

    def allowed(self, nodes: int) -> int:
        """How many of `nodes` may be drained at the same time: the share, and at least one."""
        return max(1, math.floor(self.max_drained_share * nodes + 1e-9))


def _path(point: Any) -> bool:
    plain = isinstance(point, str) and point.startswith("/") and "\0" not in point
    return plain and ".." not in point.split("/")
