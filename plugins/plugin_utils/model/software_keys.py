# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every key of `software`. Validation, messages and the pages under docs/ come from here."""

from __future__ import annotations

from typing import Any

from ...module_utils.software.software_set import (
    CUDA_URL,
    DOCA,
    DOCA_PROFILE,
    DOCA_URL,
    INBOX,
    NO_RDMA,
    OPEN,
    PROPRIETARY,
)
from ..schema.kinds import Boolean, Key, OneOf, OrNull, Section, Text, Wrong

KEY = "software"
"""The key of a cluster model."""
VARIABLE = "cluster_software"
"""The variable that it is compiled to."""

GPUS = ("B300", "B200", "H200", "H100")


def _version(parts: str, wanted: str, example: str, empty: bool = True) -> Text:
    return Text(parts, wanted, f'"{example}" (in quotes)', 40, empty)


_THREE = r"\d+\.\d+\.\d+"
_DRIVER_VERSION = _version(
    _THREE, "a driver version with all its numbers", "580.95.05", empty=False
)
"""DKMS and the driver itself say all of them: half a version would never be read back."""

RDMA = Section(
    "software.rdma",
    "RDMA drivers and tools, the layer `rdma`.",
    (
        Key(
            "source",
            OneOf((DOCA, INBOX, NO_RDMA)),
            "`doca`: DOCA-OFED of NVIDIA. `inbox`: drivers of the kernel, tools of the "
            "distribution. `none`: the layer does nothing.",
            default=INBOX,
        ),
        Key(
            "version",
            _version(_THREE, "a release of DOCA", "3.2.0"),
            "Release of DOCA, for the source `doca` alone.",
            default="",
        ),
        Key(
            "profile",
            Text(r"doca-[a-z0-9-]+", "a profile of DOCA", "doca-ofed", 40, empty=True),
            "Its meta package: `doca-ofed`, `doca-roce`, `doca-all`, ...",
            default_text=f"`{DOCA_PROFILE}` with the source `doca`",
        ),
    ),
    {"ofed": "Write source: doca", "mlnx_ofed": "Write source: doca, its successor"},
)

DRIVER = Section(
    "software.driver",
    "The NVIDIA driver, and with it the layer `gpu`. Fabric manager, NSCQ, IMEX and persistenced "
    "have its version by construction: there is no key for them.",
    (
        Key("version", _DRIVER_VERSION, "Its version; the branch is the first number.", True),
        Key(
            "modules",
            OneOf((OPEN, PROPRIETARY)),
            "Its kernel modules.",
            default=OPEN,
        ),
        Key(
            "gpu",
            OneOf(GPUS),
            "The GPU of the nodes, which says what is needed beside the driver.",
            default=GPUS[0],
        ),
    ),
    dict.fromkeys(
        ("fabric_manager", "fabricmanager", "nvlsm", "imex", "persistenced"),
        "Leave it out: it is installed with the driver, and fits it",
    )
    | {"branch": "Leave it out: it is the first number of version"},
)


class _Url(Text):
    def wrong(self, value: Any) -> Wrong:
        if isinstance(value, str) and "@" in value:
            # Not shown: what stands before the sign is a password.
            return Wrong(
                "software.secret_in_url",
                "a user or password is in it",
                f"Write {self.wanted}",
                "a secret",
            )
        return super().wrong(value)


def _url(*fields: str) -> Text:
    """No braces but these: nothing that is computed can be a template."""
    return _Url(
        r"(https?://[^\s{}'\"@]|file:///)([^\s{}'\"@]|\{(" + "|".join(fields) + r")\})*",
        "a URL (https://, http:// or file:///) without user or password, in which "
        + " and ".join(f"{{{field}}}" for field in fields)
        + " are filled in",
        "file:///srv/packages/{distribution}",
        500,
    )


_FILE = Text(r"[^\s{}'\"]+", "a file of the controller", "keys/cuda.asc", 500)
_SHA256 = Text(
    r"[0-9a-f]{64}",
    "a SHA-256 checksum (64 digits 0 to 9, a to f)",
    "what sha256sum FILE prints",
    64,
    empty=True,
)


def _repository(name: str, url: str, fields: tuple[str, ...], says: str) -> Section:
    return Section(
        f"software.repositories.{name}",
        says,
        (
            Key(
                "url",
                _url(*fields),
                "Its base; a mirror or a folder (`file:///`) serves too.",
                default=url,
            ),
            Key(
                "key",
                _FILE,
                "File with the public key that signs it, on the controller, relative to the "
                "inventory.",
                required=True,
            ),
            Key(
                "key_sha256",
                _SHA256,
                "Checksum of that file: compare the key's fingerprint first, then run sha256sum. "
                "While it is empty, no layer uses the repository.",
                required=True,
            ),
            Key(
                "signed_metadata",
                Boolean(),
                "Whether dnf checks the signature of the metadata too; of packages it always does.",
                default=True,
            ),
        ),
        dict.fromkeys(
            ("trusted", "gpgcheck", "verify", "validate_certs"),
            "Leave it out: signatures are always verified",
        ),
    )


REPOSITORIES = Section(
    "software.repositories",
    "Where the packages of the set come from.",
    (
        Key(
            "cuda",
            OrNull(
                _repository(
                    "cuda",
                    CUDA_URL,
                    ("distribution", "architecture"),
                    "Driver, CUDA, DCGM, GDRCopy, NCCL. `{distribution}` is `ubuntu2204`, "
                    "`ubuntu2404` or `rhel9`.",
                )
            ),
            "Needed with a driver.",
        ),
        Key(
            "doca",
            OrNull(
                _repository(
                    "doca",
                    DOCA_URL,
                    ("version", "distribution", "architecture"),
                    "DOCA-OFED. `{version}` is `rdma.version`, `{distribution}` is `ubuntu22.04`, "
                    "`ubuntu24.04` or `rhel9`.",
                )
            ),
            "Needed with `rdma.source: doca`.",
        ),
    ),
)

SOFTWARE = Section(
    "software",
    "The one set of versions that the layers `rdma` and `gpu` install, pin and hold: "
    "[software-set.md](software-set.md).",
    (
        Key(
            "kernel",
            Text(r"[0-9][A-Za-z0-9._+~-]*", "a kernel release", "6.8.0-79-generic", 80, empty=True),
            "The kernel that has to run, as `uname -r` says it. Empty: the one that is installed "
            "is held.",
            default="",
        ),
        Key("rdma", RDMA, "RDMA drivers and tools.", default=RDMA.defaults()),
        Key("driver", OrNull(DRIVER), "The NVIDIA driver. Left out, there is no layer `gpu`."),
        Key(
            "cuda",
            _version(r"\d+\.\d+", "a CUDA toolkit by its first two numbers", "13.0"),
            "CUDA toolkit. Empty: not in the set; likewise the next three.",
            default="",
        ),
        Key("dcgm", _version(_THREE, "a version of DCGM", "4.4.1"), "DCGM.", default=""),
        Key(
            "gdrcopy",
            _version(_THREE, "a version of GDRCopy with all its numbers", "2.5.1"),
            "GDRCopy.",
            default="",
        ),
        Key("nccl", _version(_THREE, "a version of NCCL", "2.28.3"), "NCCL.", default=""),
        Key("repositories", REPOSITORIES, "Package repositories.", default=REPOSITORIES.defaults()),
    ),
    {
        "ofed": "Write it under rdma: {source: doca, version: ...}",
        "doca": "Write it under rdma: {source: doca, version: ...}",
        "nvidia_driver": "Write it under driver: {version: ...}",
    }
    | dict.fromkeys(
        ("fabric_manager", "fabricmanager"),
        "Leave it out: it is of the driver's version by construction",
    ),
)
