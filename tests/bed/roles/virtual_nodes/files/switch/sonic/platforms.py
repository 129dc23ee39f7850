# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hardware that the simulation copies, as SONiC describes it: names, buffers and headroom rows.

The figures are from sonic-net/sonic-buildimage 086b03bd, device/: ACS-SN5600 for Spectrum, and
Nokia-IXR7220-H5-64D (Tomahawk 5) for other ASICs, whose pool has space after XOFF and a size below
XON, and whose rows have the column xon_offset. config apply-patch supports both (PFC_WD).
"""

from __future__ import annotations

from dataclasses import dataclass

from .database import Config, Row

POOL = "ingress_lossless_pool"


@dataclass(frozen=True)
class Platform:
    folder: str
    """Directories under /usr/share/sonic/device: platform and hardware SKU."""
    asic_type: str
    buffer_model: str
    pools: Config
    """BUFFER_POOL and the profiles of its pools."""
    rows: str
    """speed cable size xon xoff threshold [xon_offset]"""

    @property
    def name(self) -> str:
        return self.folder.partition("/")[0]

    @property
    def hwsku(self) -> str:
        return self.folder.partition("/")[2]

    @property
    def ini(self) -> str:
        """Rows of pg_profile_lookup.ini."""
        return f"# speed cable size xon xoff threshold xon_offset\n{self.rows.strip()}\n"

    def profile(self, speed: str, cable: str) -> Row:
        """Return buffermgrd's profile for a speed (Mb/s) and a cable; None without a row for
        them."""
        for line in self.rows.strip().splitlines():
            its_speed, its_cable, size, xon, xoff, threshold, *offset = line.split()
            if (its_speed, its_cable) == (speed, cable):
                row = {"pool": POOL, "xon": xon, "xoff": xoff, "size": size}
                row.update({"xon_offset": offset[0]} if offset else {})
                return {**row, "dynamic_th": threshold}
        return {}


def _pool(direction: str, size: str, **further: str) -> Row:
    return {"type": direction, "mode": "dynamic", "size": size, **further}


def _profile(pool: str, threshold: str) -> Row:
    return {"pool": pool, "size": "0", "dynamic_th": threshold}


_SPECTRUM: Config = {
    "BUFFER_POOL": {
        POOL: _pool("ingress", "136200192"),
        "egress_lossless_pool": _pool("egress", "136200192"),
        "egress_lossy_pool": _pool("egress", "136200192"),
    },
    "BUFFER_PROFILE": {
        "ingress_lossless_profile": _profile(POOL, "7"),
        "ingress_lossy_profile": _profile(POOL, "3"),
        "egress_lossless_profile": _profile("egress_lossless_pool", "7"),
        "egress_lossy_profile": _profile("egress_lossy_pool", "7"),
        "q_lossy_profile": _profile("egress_lossy_pool", "3"),
    },
}
_SPECTRUM4_ROWS = """
100000   5m  133120 19456  113664 0
400000   5m  250880 19456  231424 0
800000   5m  304128 38912  257024 0
100000  40m  146432 19456  126976 0
400000  40m  303104 19456  283648 0
800000  40m  410624 38912  362496 0
100000 300m  244736 19456  225280 0
400000 300m  697344 19456  677888 0
800000 300m 1198080 38912 1150976 0
"""
_TOMAHAWK5: Config = {
    "BUFFER_POOL": {
        POOL: _pool("ingress", "161176208", xoff="29520896"),
        "egress_lossless_pool": _pool("egress", "161176208"),
    },
    "BUFFER_PROFILE": {
        "ingress_lossy_profile": _profile(POOL, "-1"),
        "egress_lossy_profile": _profile("egress_lossless_pool", "-4"),
        "egress_lossless_profile": _profile("egress_lossless_pool", "3"),
    },
}
_TOMAHAWK5_ROWS = """
100000   5m 1248 2288 165568 0 2288
400000   5m 1248 2288 307848 0 2288
800000   5m 1248 2288 572516 0 2288
100000  40m 1248 2288 177632 0 2288
400000  40m 1248 2288 330200 0 2288
800000  40m 1248 2288 614172 0 2288
100000 300m 1248 2288 268736 0 2288
400000 300m 1248 2288 499618 0 2288
800000 300m 1248 2288 929132 0 2288
"""


def _mellanox(folder: str) -> Platform:
    # Rows of Spectrum-4 for all Spectrum ASICs: the dynamic model does not read them.
    return Platform(folder, "mellanox", "dynamic", _SPECTRUM, _SPECTRUM4_ROWS)


SPECTRUM4 = _mellanox("x86_64-nvidia_sn5600-r0/ACS-SN5600")
BROADCOM = Platform(
    "x86_64-nokia_ixr7220_h5_64d-r0/Nokia-IXR7220-H5-64D",
    "broadcom",
    "traditional",
    _TOMAHAWK5,
    _TOMAHAWK5_ROWS,
)
PLATFORMS = {
    "": SPECTRUM4,
    "spectrum": _mellanox("x86_64-mlnx_msn2700-r0/ACS-MSN2700"),
    "spectrum2": _mellanox("x86_64-mlnx_msn3700-r0/ACS-MSN3700"),
    "spectrum3": _mellanox("x86_64-mlnx_msn4700-r0/ACS-MSN4700"),
    "spectrum4": SPECTRUM4,
    "spectrum5": _mellanox("x86_64-nvidia_sn5640-r0/ACS-SN5640"),
    "spectrum6": _mellanox("x86_64-nvidia_sn6600_ld-r0/ACS-SN6600_LD"),
}


def platform_of(asic: str) -> Platform:
    """Return the platform of an ASIC named by the model."""
    return PLATFORMS.get(asic, BROADCOM)
