# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Addresses and ports on loopback for the exclusive use of one test."""

from __future__ import annotations

import os
import socket

LOOPBACK = "127.0.0.1"


def own_address() -> str:
    """Return a loopback address of this process, separate from those of other runs."""
    pid = os.getpid()
    return f"127.{64 + (pid >> 16)}.{pid >> 8 & 255}.{pid & 255}"


def held_port(address: str = LOOPBACK) -> socket.socket:
    """Return a socket that reserves a port without listening on it.

    A server that sets SO_REUSEADDR, as most do, can listen on the same port.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((address, 0))
    return held
