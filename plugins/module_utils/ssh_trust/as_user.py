# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Work done with the rights of an unprivileged user.

What lies in a user's home is the user's: root following a symbolic link there would read or write
whatever the link names, and a home on NFS does not let root in at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from .account import Account


def as_user(account: Account, work: Callable[[], Any]) -> Any:
    """What `work` returns (a JSON value), done in a child process as this user.

    Raises OSError with the child's words when it fails.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            become(account)
            os.umask(0o077)
            answer = json.dumps({"value": work()})
            status = 0
        except BaseException as error:
            answer = json.dumps({"error": str(error) or type(error).__name__})
        finally:
            with os.fdopen(writing, "w", encoding="utf-8") as stream:
                stream.write(answer)
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as stream:
        text = stream.read()
    os.waitpid(child, 0)
    told = json.loads(text) if text else {"error": "the child process died"}
    if "error" in told:
        raise OSError(f"as {account.name}: {told['error']}")
    return told["value"]


def become(account: Account) -> None:
    """Give up every right of root, for good."""
    if os.geteuid() == 0:
        os.initgroups(account.name, account.gid)
        os.setgid(account.gid)
        os.setuid(account.uid)
