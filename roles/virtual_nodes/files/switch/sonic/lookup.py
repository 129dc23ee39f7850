# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The platform's pg_profile_lookup.ini: speed (Mb/s), cable, and the profile that buffermgrd makes.

800G and the 5 m of 400G are those published for SN5600; the others are the simulation's.
"""

from __future__ import annotations

_ROWS = """
10000   5m    49152 19456  36864
10000   40m   52224 19456  38912
10000   300m  77824 19456  58368
400000  5m   250880 19456 231424
400000  40m  303104 19456 283648
400000  300m 697344 19456 677888
800000  5m   304128 38912 257024
800000  40m  410624 38912 362496
800000  300m 1198080 38912 1150976
"""

INI = "# speed cable size xon xoff threshold\n" + "".join(
    f"{line}   0\n" for line in _ROWS.strip().split("\n")
)
SIZES = {
    (speed, cable): {"xon": xon, "xoff": xoff, "size": size, "dynamic_th": "0"}
    for speed, cable, size, xon, xoff in (line.split() for line in _ROWS.split("\n") if line)
}
