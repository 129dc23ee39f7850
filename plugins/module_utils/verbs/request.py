# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the operator asked for, as both ends of a pair know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Optional

from ..core.dataclass import dataclass
from ..mpi import environment as mpi_environment
from ..qos import HostSettings
from .exchanges import Effort

DIRECTORY = Path("/run/baremetal-mpi-roce/verbs")
UNIT = "baremetal-mpi-verbs"


class EnvironmentFileError(Exception):
    """The node's MPI environment cannot be read; the text says whose, which file and why."""


@dataclass(frozen=True)
class Half:
    """One pair as one of its two hosts sees it."""

    rail: str
    """Interface of the rail, the same name on both: `rail3`, `rail3p1`."""
    address: str
    """Its address here."""
    peer: str
    """The other host."""
    peer_address: str
    port: int
    """TCP port of the first exchange, on the serving host."""


@dataclass(frozen=True)
class Expectation:
    """What figures are held against; None asks for nothing."""

    write_share: Optional[float] = None
    """Least share of the line rate."""
    send_share: Optional[float] = None
    latency_us: Optional[float] = None
    """Greatest median."""


@dataclass(frozen=True)
class Request:
    """Of one host in one run."""

    run_id: str
    host: str
    settings: HostSettings
    drives: tuple[Half, ...] = ()
    serves: tuple[Half, ...] = ()
    effort: Effort = field(default_factory=Effort)
    expectation: Expectation = field(default_factory=Expectation)
    exchanges: tuple[str, ...] = ()
    speeds_gbps: Mapping[str, float] = field(default_factory=dict)
    """Line rate of each rail."""
    environment_file: Path = Path(mpi_environment.ENVIRONMENT_FILE)
    limit_s: float = 600.0
    """Seconds after which the servers end whatever happens."""
    sys: Path = Path("/sys")

    def mpi_environment(self) -> dict[str, str]:
        """The MPI environment of this node. Raises EnvironmentFileError."""
        try:
            text = self.environment_file.read_text(encoding="utf-8")
            return mpi_environment.parse_environment(text)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise EnvironmentFileError(
                f"{self.host}: MPI environment {self.environment_file}: {reason}; write it "
                f"with --tags mpi --limit {self.host}"
            ) from error


def watch_told(request: Request, half: Half, by: str, device: str) -> dict[str, Any]:
    """How to watch a rail, in the form that the serving program takes."""
    return {
        "by": by,
        "interface": half.rail,
        "device": device,
        "peer": half.peer_address,
        "traffic_class": request.settings.traffic_class,
        "cnp_dscp": request.settings.cnp_dscp,
    }
