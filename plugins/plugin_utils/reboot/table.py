# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The outcome of every host that had a reason to reboot: one row each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from ...module_utils.core.text import columns

VERIFIED, FAILED, LEFT, WAITING = "verified", "failed", "left", "not rebooted"
HEADINGS = ("host", "reason", "batch", "seconds", "outcome")
WIDEST = 60
CHECKED = "would be rebooted"
CHECKED_VERIFY = "would be verified"


def outcomes(
    plan: Mapping[str, Any], ended: Mapping[str, Mapping[str, Any]], check_mode: bool
) -> dict[str, dict[str, Any]]:
    """By host: reason, batch, seconds, status and text.

    `plan` is that of planning.plan; `ended` has the outcomes of the hosts that had a turn. A host
    without one was lost in its turn, and those after it have not had theirs.
    """
    found: dict[str, dict[str, Any]] = {}
    stopped: Optional[str] = None
    for number, batch in enumerate(plan["batches"], 1):
        wrong = []
        for turn in batch["turns"]:
            row = {"batch": number, "reasons": list(turn["why"]), "layers": list(turn["layers"])}
            here = ended.get(turn["name"])
            if check_mode:
                text = CHECKED if batch["what"] == "reboot" else CHECKED_VERIFY
                row.update(status=WAITING, text=text)
            elif stopped is not None:
                row.update(status=WAITING, text=f"not rebooted: {stopped}")
            elif here is None:
                row.update(status=FAILED, text="lost while its batch ran")
            else:
                row.update(here)
            if row["status"] == FAILED:
                wrong.append(turn["name"])
            found[turn["name"]] = row
        if wrong and stopped is None:
            stopped = f"batch {number} did not come back right ({', '.join(wrong)})"
    for left in plan["left"]:
        found[left["name"]] = {
            "batch": None,
            "reasons": list(left["reasons"]),
            "layers": [],
            "status": LEFT,
            "text": f"left: {left['why']}",
            "policy": left["policy"],
        }
    return found


def lines(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The table, with the outcome in its last column."""
    rows: list[Sequence[str]] = [HEADINGS]
    for host, row in found.items():
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
    """What is going to happen, before it does."""
    found = []
    for number, batch in enumerate(plan["batches"], 1):
        names = ", ".join(turn["name"] for turn in batch["turns"])
        verb = "reboot" if batch["what"] == "reboot" else "verify, rebooted already:"
        found.append(f"batch {number}: {verb} {names}")
    found += [f"left: {each['name']}: {each['why']}" for each in plan["left"]]
    return found or ["no host has recorded a reason to reboot"]


def _short(text: str) -> str:
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 3]}..."
