# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The outcome of each host that had a reason to reboot, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from ...module_utils.core.text import columns

VERIFIED, FAILED, LEFT, WAITING = "verified", "failed", "left", "not rebooted"
HEADINGS = ("host", "reason", "batch", "seconds", "outcome")
MAX_REASON_CHARACTERS = 60
CHECKED = "would be rebooted"
CHECKED_VERIFY = "would be verified"


def outcomes(
    plan: Mapping[str, Any], finished: Mapping[str, Mapping[str, Any]], check_mode: bool
) -> dict[str, dict[str, Any]]:
    """Reasons, batch, seconds, status and text of each host.

    `plan` is the result of planning.plan; `finished` contains the outcomes of finished turns. A
    host without an outcome was lost during its turn; later batches did not start.
    """
    rows: dict[str, dict[str, Any]] = {}
    stopped: Optional[str] = None
    for number, batch in enumerate(plan["batches"], 1):
        failed = []
        for turn in batch["turns"]:
            row = {"batch": number, "reasons": list(turn["why"]), "layers": list(turn["layers"])}
            outcome = finished.get(turn["name"])
            if check_mode:
                text = CHECKED if batch["action"] == "reboot" else CHECKED_VERIFY
                row.update(status=WAITING, text=text)
            elif stopped is not None:
                row.update(status=WAITING, text=f"not rebooted: {stopped}")
            elif outcome is None:
                row.update(status=FAILED, text="lost while its batch ran")
            else:
                row.update(outcome)
            if row["status"] == FAILED:
                failed.append(turn["name"])
            rows[turn["name"]] = row
        if failed and stopped is None:
            stopped = f"batch {number} failed ({', '.join(failed)})"
    for left in plan["left"]:
        rows[left["name"]] = {
            "batch": None,
            "reasons": list(left["reasons"]),
            "layers": [],
            "status": LEFT,
            "text": f"left: {left['why']}",
            "policy": left["policy"],
        }
    return rows


def lines(outcomes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The table as lines."""
    rows: list[Sequence[str]] = [HEADINGS]
    for host, row in outcomes.items():
        rows.append(
            (
                host,
                _short("; ".join(row["reasons"]) or "-"),
                str(row["batch"] or "-"),
                f"{row['seconds']:.0f}" if row.get("seconds") is not None else "-",
                " ".join(str(row["text"]).split()),
            )
        )
    return columns(rows, left=range(len(HEADINGS)))


def plan_lines(plan: Mapping[str, Any]) -> list[str]:
    """The plan as lines."""
    lines = []
    for number, batch in enumerate(plan["batches"], 1):
        names = ", ".join(turn["name"] for turn in batch["turns"])
        verb = "reboot" if batch["action"] == "reboot" else "verify (already rebooted)"
        lines.append(f"batch {number}: {verb} {names}")
    lines += [f"left: {item['name']}: {item['why']}" for item in plan["left"]]
    return lines or ["no host has recorded a reason to reboot"]


def _short(text: str) -> str:
    return text if len(text) <= MAX_REASON_CHARACTERS else f"{text[: MAX_REASON_CHARACTERS - 3]}..."
