# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Addresses and ports of this machine that only one test uses."""

from __future__ import annotations

import os
import socket

LOOPBACK = "127.0.0.1"


def own_address() -> str:
    """A loopback address that no other process uses, so no other run counts packets to it."""
    pid = os.getpid()
    return f"127.{64 + (pid >> 16)}.{pid >> 8 & 255}.{pid & 255}"


def held_port(address: str = LOOPBACK) -> socket.socket:
    """A socket bound to a port that no other process gets while it is open, and without a listener.

    A server that sets SO_REUSEADDR, as most do, may also listen there.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((address, 0))
    return held
