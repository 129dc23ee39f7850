# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Buffers of lossless traffic: the pool, a profile per kind of port, and checks of chip and
release.

The headroom of a port is that of the model (`asics`), otherwise the row of the switch's own
pg_profile_lookup.ini, otherwise NVIDIA's formula. In the traditional buffer model buffermgrd makes
profiles (`pg_lossless_800000_40m_profile`) and binds them, again after each change of a port, where
that file has its speed and cable length. Such profiles are used if they have enough headroom; a row
with less is refused, since it would be bound again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Optional

from ...schema.findings import Finding
from ..asics import ASICS, MAX_LANES, Headroom, WantedError, headroom, in_flight
from ..system import OWNED, PortIntent, SwitchError, SwitchIntent
from . import tables
from .reading import DYNAMIC, Present
from .tables import Row

POOL = "ingress_lossless_pool"
EGRESS, LOSSY_EGRESS = "egress_lossless_profile", "egress_lossy_profile"
GENERATED = "pg_lossless_"
"""Prefix of profiles that the switch creates. They are never changed."""
THRESHOLD = "0"
"""2^0 = 1, as much as the free part of the shared buffer, as in pg_profile_lookup.ini of SN5600,
IXR7220-H5 and Z9864F (Tomahawk 5). Rows and DEFAULT_LOSSLESS_BUFFER_PARAMETER take precedence."""
MELLANOX = "mellanox"
GEARBOX = "x86_64-mlnx_msn3800-"
"""It adds a delay that the formula does not include (peripheral_table.j2)."""

GENERATIONS = {"2": "", "3": "2", "4": "3", "5": "4", "5640": "5", "6": "6"}
"""Generations of Spectrum by the prefix of a switch's model number, the longest first:
sonic-buildimage 086b03bd, platform/mellanox/asic_table.j2."""
_NVIDIA = re.compile(r"[a-z0-9_]+-(?:mlnx|nvidia)_[a-z]*sn([0-9]{4})")
FAMILIES = {"spectrum": MELLANOX, "tomahawk": "broadcom", "trident": "broadcom"}
"""`asic_type` by the prefix of a chip's name."""
VIRTUAL = "vs"


def check_chip(intent: SwitchIntent, present: Present) -> None:
    name, platform = intent.asic.name, present.metadata.get("platform", "")
    family = next((v for k, v in FAMILIES.items() if name.startswith(k)), "")
    actual = chip_of(platform)
    if actual and name in ASICS and name != actual:
        wrong = f"platform {platform} has the chip {actual}"
    elif family and present.asic_type not in ("", VIRTUAL, family):
        wrong = f"its chip is of the family {present.asic_type}"
    else:
        return
    remedy = actual or "the name of its chip"
    raise SwitchError(
        f"{wrong}, and the model says {name}, so the headroom would be wrong. Write "
        f"{remedy} into leaves.asic or spines.asic, which may be a list with one for each switch"
    )


def chip_of(platform: str) -> str:
    number = _NVIDIA.match(platform)
    if number is None:
        return ""
    for begin in sorted(GENERATIONS, key=len, reverse=True):
        if number[1].startswith(begin):
            return f"spectrum{GENERATIONS[begin]}"
    return ""


def profiles(intent: SwitchIntent, present: Present) -> dict[str, tuple[str, Row]]:
    """Name and fields of the profile for each port of the model; empty without a lossless class.

    Raises WantedError, listing every kind of port with unknown headroom.
    """
    if not intent.fabric.pfc_priorities:
        return {}
    mode = _mode(present)
    made: dict[tuple[int, int, bool], tuple[str, Row]] = {}
    found: dict[str, tuple[str, Row]] = {}
    missing: list[Finding] = []
    for port in intent.ports:
        fewest = intent.asic.fewest_lanes(port.speed_gbps)
        shown = present.config["PORT"][port.name].get("lanes", "")
        lanes = max(fewest, len(shown.split(",")))
        # The formula doubles XON for eight lanes at any speed; a row applies to any port.
        link = (port.speed_gbps, port.cable_metres)
        computed = link not in intent.asic.values and link not in present.lookup
        wide = computed and lanes == MAX_LANES > fewest
        kind = (*link, wide)
        if kind not in made:
            try:
                needed = _needed(intent, port, lanes, present)
            except WantedError as error:
                missing.extend(error.findings)
                continue
            name = f"{OWNED}_{port.speed_gbps}G_{port.cable_metres}M{'_8L' if wide else ''}"
            made[kind] = name, _row(name, needed, port, mode, present)
        found[port.name] = made[kind]
    if missing:
        raise WantedError([replace(each, path=(intent.name,)) for each in dict.fromkeys(missing)])
    return found


def _needed(intent: SwitchIntent, port: PortIntent, lanes: int, present: Present) -> Headroom:
    speed, metres = port.speed_gbps, port.cable_metres
    own, given = present.lookup.get((speed, metres)), intent.asic.values.get((speed, metres))
    needed = given or own
    if needed is None:
        delayed = present.metadata.get("platform", "").startswith(GEARBOX)
        asic = replace(intent.asic, formula=None) if delayed else intent.asic
        needed = headroom(asic, speed, metres, intent.fabric.mtu_frame, lanes)
    if own is not None and own.xoff_bytes < needed.xoff_bytes:
        raise SwitchError(
            f"{port.name}: the model (asics) has {needed.xoff_bytes} bytes after XOFF for {metres} "
            f"m of cable at {speed}G, and pg_profile_lookup.ini of the platform, which the switch "
            f"binds in the traditional buffer model, {own.xoff_bytes}. Correct one of these rows, "
            "or change to the dynamic model (DEVICE_METADATA|localhost buffer_model)"
        )
    least = in_flight(speed, metres)
    if needed.xoff_bytes < least:
        source = "pg_profile_lookup.ini of the platform" if given is None else "the model (asics)"
        raise SwitchError(
            f"{port.name}: {source} has {needed.xoff_bytes} bytes after XOFF for {metres} m of "
            f"cable at {speed}G, which hold {least} bytes: packets are lost on every pause. "
            "Correct that row, or the length in roce_qos.cable_metres"
        )
    return needed


def _row(name: str, needed: Headroom, port: PortIntent, mode: str, present: Present) -> Row:
    """A profile in the form of buffermgrd (sonic-swss e6b0c5b5, cfgmgr/buffermgr.cpp)."""
    alike = [each for (speed, _m), each in present.lookup.items() if speed == port.speed_gbps]
    threshold = _first(needed.threshold, _common(each.threshold for each in alike))
    offset = _first(needed.xon_offset_bytes, _common(each.xon_offset_bytes for each in alike))
    row = {
        "pool": POOL,
        "size": str(_size(name, needed, present)),
        "xon": str(needed.xon_bytes),
        "xoff": str(needed.xoff_bytes),
        f"{mode}_th": _threshold(name, needed.threshold, threshold, mode, present),
    }
    return row if offset is None else {**row, "xon_offset": str(offset)}


def _first(*values: Optional[int]) -> Optional[int]:
    return next((value for value in values if value is not None), None)


def _common(values: Iterable[Optional[int]]) -> Optional[int]:
    different = set(values)
    return different.pop() if len(different) == 1 else None


def _threshold(
    name: str, given: Optional[int], likely: Optional[int], mode: str, present: Present
) -> str:
    defaults = present.config.get("DEFAULT_LOSSLESS_BUFFER_PARAMETER", {}).values()
    own = [each["default_dynamic_th"] for each in defaults if each.get("default_dynamic_th")]
    if mode == "static":
        if likely is None:
            raise SwitchError(
                f"{name}: BUFFER_POOL|{POOL} has mode static, in which a profile has a fixed limit "
                "in bytes. Neither pg_profile_lookup.ini of the platform nor the model has it. "
                "Take it from the switch vendor and write it into the model: asics, headroom, "
                "threshold"
            )
        return str(likely)
    if given is None and own:
        return own[-1]
    return THRESHOLD if likely is None else str(likely)


def _size(name: str, needed: Headroom, present: Present) -> int:
    """Size of a profile. If ports of a Spectrum share headroom, it is part of the pool, and the
    size is XON (buffer_headroom_mellanox.lua). Rows of other chips are used unchanged."""
    if present.asic_type != MELLANOX:
        return needed.size_bytes
    pool = present.config["BUFFER_POOL"][POOL]
    defaults = present.config.get("DEFAULT_LOSSLESS_BUFFER_PARAMETER", {}).values()
    shares = [pool.get("xoff"), *(each.get("over_subscribe_ratio") for each in defaults)]
    if any(share not in (None, "", "0") for share in shares):
        return needed.xon_bytes
    if needed.size_bytes < needed.xon_bytes + needed.xoff_bytes:
        raise SwitchError(
            f"{name}: a size of {needed.size_bytes} bytes does not hold its {needed.xoff_bytes} "
            f"after XOFF, and BUFFER_POOL|{POOL} has no xoff: ports of this switch do not share "
            "headroom. In the model write size_bytes of a switch that does not (asics), or load "
            "the buffers of the platform with shared headroom"
        )
    return needed.size_bytes


def _mode(present: Present) -> str:
    """Mode of the ingress pool of lossless traffic, which belongs to the platform."""
    pools = present.config.get("BUFFER_POOL", {})
    if POOL not in pools:
        raise SwitchError(
            f"BUFFER_POOL has no {POOL}: the switch has no buffer for lossless traffic, and its "
            f"size depends on the platform. {_of_another_sku(POOL, present)}"
        )
    return pools[POOL].get("mode", DYNAMIC)


def _of_another_sku(name: str, present: Present) -> str:
    """A remedy without the name of an SKU: of 54 SKUs without a pool in sonic-buildimage 086b03bd,
    38 are on platforms where no SKU has one."""
    platform, sku = (present.metadata.get(key, "") for key in ("platform", "hwsku"))
    folder = "/usr/share/sonic/device/"
    folder += platform if re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", platform) else "PLATFORM"
    return (
        f"`grep -l {name} {folder}/*/buffers*.j2` on the switch lists the hardware SKUs "
        f"that have one. If {sku or 'its own'} is in the list, load the buffers (`config qos "
        "reload`; the file is chosen by DEVICE_METADATA|localhost type), save, and run again. If "
        "not, the switch needs another SKU of the list (DEVICE_METADATA|localhost hwsku, which "
        "changes its ports). If the list is empty, take a template of buffers with it from "
        "the vendor"
    )


def check_egress_pool(intent: SwitchIntent, present: Present) -> None:
    profiles = present.config.get("BUFFER_PROFILE", {})
    names = {port.name for port in intent.ports}
    # Of lossy classes, only that of RoCE data, which fills its queue, depends on the pool.
    queues = {q.traffic_class: q for q in intent.fabric.queues if q.lossless or q.name == "roce"}
    for key, row in present.config.get("BUFFER_QUEUE", {}).items():
        profile = row.get("profile", "")
        pool = profiles.get(profile, {}).get("pool", "")
        if tables.port_of(key) not in names:
            continue
        for number in sorted(queues.keys() & set(tables.numbers_of(key))):
            queue = queues[number]
            data = "RoCE data" if queue.name == "roce" else f"class {queue.name}"
            key_of = "roce_qos.roce" if queue.name == "roce" else f"roce_qos.classes, {queue.name}"
            if "lossy" in pool and queue.lossless:
                fault, better = "when full, it drops packets instead of pausing", EGRESS
            elif "lossless" in pool and not queue.lossless:
                # Its limit is that of the whole buffer, since pauses limit what arrives.
                fault, better = "a congested port could fill the buffer of all others", LOSSY_EGRESS
            else:
                continue
            raise SwitchError(
                f"BUFFER_QUEUE|{key} serves queue {number}, that of {data}, from {pool} "
                f"({profile}): {fault}. Bind that queue to {better}, or give {data} the priority "
                f"of a queue that has it ({key_of}.priority). {_of_another_sku(better, present)}"
            )


def left_to_the_switch(keys: list[str], profile: Row, present: Present) -> bool:
    """Whether the switch's own profiles in these rows of BUFFER_PG have enough headroom."""
    if present.buffer_model == DYNAMIC:
        return False
    bound = [present.config["BUFFER_PG"][key].get("profile", "") for key in keys]
    existing = present.config.get("BUFFER_PROFILE", {})
    wanted = int(profile["xoff"])
    return bool(bound) and all(
        name.startswith(GENERATED) and tables.number(existing.get(name, {}).get("xoff")) >= wanted
        for name in bound
    )


def generated(key: str, present: Present) -> bool:
    """Whether buffermgrd has bound its own profile in this row of BUFFER_PG."""
    profile = present.config.get("BUFFER_PG", {}).get(key, {}).get("profile", "")
    return present.buffer_model != DYNAMIC and profile.startswith(GENERATED)


OLDEST = 202511
_RELEASE = re.compile(r"(?<![0-9])(20[0-9]{2}(?:0[1-9]|1[0-2]))(?:[0-9]{2})?(?![0-9])")
_COMMIT = re.compile(r"-(?![0-9]{8}$)[0-9a-f]{7,}$")


def release_of(version: str) -> Optional[int]:
    """The release in `build_version`, such as SONiC.202511.7-1a2b3c4d5 or 20251110.05; None of
    SONiC.master.1-201911b3c."""
    # The later number is the build date.
    return min(map(int, _RELEASE.findall(_COMMIT.sub("", version))), default=None)


def check_release(present: Present) -> None:
    """Raise SwitchError if `config apply-patch` of the release refuses required changes.

    The GCU accepts new objects of WRED_PROFILE and BUFFER_PROFILE since pull requests 4219 and 4128
    of sonic-utilities, which are in 202511 (of January 2026) and not in 202505. For a version
    without a release, the dry run of the first patch decides.
    """
    release = release_of(present.version)
    if release is not None and release < OLDEST:
        raise SwitchError(
            f"SONiC {present.version} is release {release}, and its `config apply-patch` refuses "
            "new objects of WRED_PROFILE and BUFFER_PROFILE. Install 202511 (of January 2026) or "
            "later, or configure the switch by hand and remove its system from the model "
            "(leaves.system, spines.system)"
        )
