# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Networks of LNet, and NIDs: the addresses of nodes in them."""

from __future__ import annotations

import re
from dataclasses import dataclass

TCP, O2IB = "tcp", "o2ib"
DRIVERS = {TCP: "ksocklnd", O2IB: "ko2iblnd"}
"""Kind of network to the kernel module that drives it; others are not for Ethernet with RoCE."""
OTHERS = ("lo", "kfi", "gni", "gip", "ptlf", "ptl4", "efa")
"""Kinds that LNet has besides."""

_NET = re.compile(r"(tcp|o2ib)(\d{0,5})")
_ADDRESS = re.compile(r"\d{1,3}(\.\d{1,3}){3}")
_HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9-]+)*")
_COLONS = re.compile(r"[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*")


class NidError(ValueError):
    """Not a network or NID; `problem` says why, `remedy` what to write."""

    def __init__(self, code: str, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}. {remedy}")
        self.code = code
        self.problem = problem
        self.remedy = remedy


@dataclass(frozen=True, order=True)
class Nid:
    """`net` is as LNet tells it: `o2ib`, never `o2ib0`."""

    address: str
    """IPv4, or the name of a host, which mount.lustre looks up once."""
    net: str

    @property
    def named(self) -> bool:
        return _ADDRESS.fullmatch(self.address) is None

    def __str__(self) -> str:
        return f"{self.address}@{self.net}"


def kind(net: str) -> str:
    """`o2ib` of `o2ib2`."""
    return O2IB if net.startswith(O2IB) else TCP


def read_net(text: str) -> str:
    """The network in LNet's own spelling, in which the number 0 is left out. Raises NidError."""
    found = _NET.fullmatch(text)
    if found is None or int(found[2] or 0) > 0xFFFF:
        name = text.rstrip("0123456789") or text
        what = "is not an LNet network"
        if name in OTHERS:
            what = "is a network that this collection does not set up"
        raise NidError("lustre.net", f"{text!r} {what}", "Write one such as o2ib0 or tcp0")
    return f"{found[1]}{int(found[2] or 0) or ''}"


def read_nid(text: str) -> Nid:
    """Raises NidError."""
    address, at, net = text.partition("@")
    if "[" in text or _COLONS.search(address):
        raise NidError(
            "lustre.nid_ipv6",
            f"{text!r} is an address of IPv6, which LNet knows from Lustre 2.17 on, and only "
            "where it was started with large NIDs on every server and router",
            "Write the server's IPv4 address",
        )
    if not at:
        raise NidError(
            "lustre.nid_without_net",
            f"{text!r} names no LNet network, and Lustre would take tcp without a word",
            f"Write {text or 'ADDRESS'}@o2ib0 or {text or 'ADDRESS'}@tcp0",
        )
    read = read_net(net)
    if _ADDRESS.fullmatch(address):
        numbers = [int(part) for part in address.split(".")]
        if max(numbers) > 255:
            raise NidError(
                "lustre.nid_ipv4", f"{address!r} is not an IPv4 address", "Each number is 0 to 255"
            )
        return Nid(".".join(map(str, numbers)), read)
    if re.fullmatch(r"[\d.]*", address) or not _HOST.fullmatch(address):
        raise NidError(
            "lustre.nid_host",
            f"{address!r} in {text!r} is neither an IPv4 address nor the name of a host",
            "Write one such as 10.0.0.1@o2ib0",
        )
    return Nid(address, read)
