# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The little of redis' protocol that the simulation speaks, over its unix socket."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

SOCKET = "/var/run/redis/redis.sock"
CONFIG, APPL, STATE, OWN = 4, 0, 6, 15
"""Numbers of the databases, as SONiC has them; OWN is the simulation's."""


class Store(Protocol):
    """Databases of hashes."""

    def keys(self, database: int, pattern: str = "*") -> list[str]: ...

    def read(self, database: int, key: str) -> dict[str, str]: ...

    def read_all(self, database: int, prefix: str = "") -> dict[str, dict[str, str]]: ...

    def write(self, database: int, rows: Mapping[str, Mapping[str, str]]) -> None:
        """Each hash as it shall be; an empty one is removed."""


class RedisError(Exception):
    """The server said no."""


class Redis:
    def __init__(self, path: str = SOCKET) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(10)
        self._socket.connect(path)
        self._stream = self._socket.makefile("rb")
        self._database = -1

    def command(self, *words: str) -> Any:
        return self.commands([words])[0]

    def commands(self, many: Sequence[Sequence[str]]) -> list[Any]:
        """All of them in one go."""
        self._socket.sendall(b"".join(_encoded(words) for words in many))
        answers = [self._answer() for _words in many]
        for answer in answers:
            if isinstance(answer, RedisError):
                raise answer
        return answers

    def select(self, database: int) -> None:
        if self._database != database:
            self.command("SELECT", str(database))
            self._database = database

    def keys(self, database: int, pattern: str = "*") -> list[str]:
        self.select(database)
        return sorted(self.command("KEYS", pattern))

    def read(self, database: int, key: str) -> dict[str, str]:
        self.select(database)
        return _pairs(self.command("HGETALL", key))

    def read_all(self, database: int, prefix: str = "") -> dict[str, dict[str, str]]:
        keys = self.keys(database, f"{prefix}*")
        answers = self.commands([("HGETALL", key) for key in keys]) if keys else []
        return {key: _pairs(answer) for key, answer in zip(keys, answers)}

    def write(self, database: int, rows: Mapping[str, Mapping[str, str]]) -> None:
        self.select(database)
        many: list[Sequence[str]] = []
        for key, row in rows.items():
            many.append(("DEL", key))
            if row:
                many.append(("HSET", key, *(word for pair in row.items() for word in pair)))
        if many:
            self.commands([("MULTI",), *many, ("EXEC",)])

    def _answer(self) -> Any:
        line = self._stream.readline()
        if not line:
            raise RedisError("redis closed the connection")
        kind, rest = line[:1], line[1:-2].decode()
        if kind == b"-":
            return RedisError(rest)
        if kind == b":":
            return int(rest)
        if kind == b"$":
            length = int(rest)
            return None if length < 0 else self._stream.read(length + 2)[:-2].decode()
        if kind == b"*":
            return [self._answer() for _number in range(int(rest))]
        return rest


def _encoded(words: Sequence[str]) -> bytes:
    parts = [f"*{len(words)}\r\n".encode()]
    for word in words:
        raw = word.encode()
        parts += [f"${len(raw)}\r\n".encode(), raw, b"\r\n"]
    return b"".join(parts)


def _pairs(flat: Sequence[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2]))
