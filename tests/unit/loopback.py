# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Addresses and ports of this machine that belong to one test alone."""

from __future__ import annotations

import os
import socket

LOOPBACK = "127.0.0.1"


def own_address() -> str:
    """On loopback, and of no other process: what is sent there is not counted by another run."""
    pid = os.getpid()
    return f"127.{64 + (pid >> 16)}.{pid >> 8 & 255}.{pid & 255}"


def held_port(address: str = LOOPBACK) -> socket.socket:
    """Bound to a port that nobody else gets while this is open, and on which nobody listens.

    A server that sets SO_REUSEADDR, as most do, may listen there beside it.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((address, 0))
    return held
