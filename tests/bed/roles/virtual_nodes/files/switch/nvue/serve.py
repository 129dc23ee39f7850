# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A simulation of a Cumulus Linux switch as seen through its NVUE REST API."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common.server import Answer, Request, Surroundings, main, words
from common.traffic import Traffic

from nvue import effective, routing, schema, vendor
from nvue.revisions import NotNow, Revisions, Unknown
from nvue.tree import Tree, at, chosen, in_ranges, merged, under

PREFIX = "nvue_v1"
TITLES = {
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    500: "Internal Server Error",
}
NO_SUCH_ADDRESS = "The requested URL was not found on the server."
DENIED = Answer(
    401,
    "<html><head><title>401 Authorization Required</title></head></html>\r\n",
    {"WWW-Authenticate": 'Basic realm="NVUE API"'},
)


class Problem(Exception):
    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.answer = Answer(
            status,
            {
                "detail": detail,
                "status": status,
                "title": TITLES[status],
                "type": "about:blank",
            },
        )


class Cumulus:
    def __init__(self, surroundings: Surroundings) -> None:
        self._hardware = surroundings.hardware
        self._release = vendor.version(surroundings.hardware)
        self._schema = schema.root(self._release)
        self._faults = surroundings.faults
        self._revisions = Revisions(surroundings)
        self._traffic = Traffic(surroundings.hardware)

    def cut_by(self, cut: Callable[[], None]) -> None:
        self._revisions.cut = cut

    def handle(self, request: Request) -> Answer:
        delay = self._faults.take("delay_s")
        if delay:
            time.sleep(float(delay))
        try:
            keys = words(request.path)
            if keys[:1] != [PREFIX]:
                raise Problem(404, NO_SUCH_ADDRESS)
            if keys[1:2] == ["revision"]:
                return self._revision(request, keys[2:])
            return self._object(request, keys[1:])
        except Problem as problem:
            return problem.answer
        except Unknown as unknown:
            return Problem(404, f"Revision {unknown} does not exist").answer
        except NotNow as refused:
            return Problem(400, str(refused)).answer
        except schema.Refused as refused:
            return Problem(400, str(refused)).answer
        except OSError as error:
            return Problem(500, str(error)).answer

    def _revision(self, request: Request, keys: list[str]) -> Answer:
        if request.method == "POST" and not keys:
            revision = self._revisions.create(request.query.get("base_rev", ""))
            return Answer(201, {revision.number: revision.shown()})
        if request.method == "GET" and not keys:
            return Answer(200, self._revisions.all())
        if len(keys) != 1:
            raise Problem(404, NO_SUCH_ADDRESS)
        if request.method == "GET":
            return Answer(200, self._revisions.get(keys[0]).shown())
        if request.method == "DELETE":
            self._revisions.delete(keys[0])
            return Answer(204, None) if self._release >= (5, 10) else Answer(200, {})
        if request.method == "PATCH":
            return Answer(200, self._revisions.command(keys[0], _json(request)))
        raise Problem(405, "The method is not allowed for the requested URL.")

    def _object(self, request: Request, keys: list[str]) -> Answer:
        node = schema.node_at(self._schema, tuple(keys))
        if request.method == "GET":
            return Answer(200, self._read(request, tuple(keys), node is not None))
        if node is None:
            raise Problem(404, NO_SUCH_ADDRESS)
        name = request.query.get("rev")
        if request.method != "PATCH":
            raise Problem(405, "The method is not allowed for the requested URL.")
        if not name:
            raise Problem(400, "Missing query parameter 'rev'")
        if name in ("applied", "startup", "operational", "empty"):
            raise Problem(400, f"Revision {name!r} cannot be changed: create one to change")
        with self._revisions.lock:
            patch = _json(request)
            change = under(tuple(keys), patch)
            schema.check(self._schema, change)
            result = merged(self._revisions.config(name), change)
            self._revisions.edit(name, result)
        return Answer(200, patch if self._release >= (5, 10) else result)

    def _read(self, request: Request, keys: tuple[str, ...], known: bool) -> Any:
        query = request.query
        name = query.get("rev", "operational")
        fill = query.get("filled", "true").lower() != "false"
        tree = self._view(name, fill)
        if name == "operational" and self._traffic:
            tree = merged(tree, routing.operational(self._traffic, keys[:1]))
        try:
            value = at(tree, keys)
        except KeyError:
            if known and name != "operational":
                return {}
            raise Problem(404, NO_SUCH_ADDRESS) from None
        if self._hardware.ranges and not fill:
            value = in_ranges(value)
        return chosen(value, query.get("include", ""))

    def _view(self, name: str, fill: bool) -> Tree:
        with self._revisions.lock:
            if name == "operational":
                running = self._revisions.running
                tree = effective.operational(running, self._hardware, self._faults)
            else:
                tree = self._revisions.config(name)
                if fill:
                    tree = effective.filled(tree, self._hardware)
        if name in ("operational", "applied") and self._faults.take("read") == "wrong":
            tree = _wrong(tree)
        return tree


def _wrong(tree: Tree) -> Tree:
    """Return wrong values for the fault `read`: every MTU and every PFC priority differs."""
    for interface in tree.get("interface", {}).values():
        if "mtu" in interface.get("link", {}):
            interface["link"]["mtu"] = 1500
    for profile in tree.get("qos", {}).get("pfc", {}).values():
        if "switch-priority" in profile:
            profile["switch-priority"] = {"0": {}}
    return tree


def _json(request: Request) -> Tree:
    try:
        body = json.loads(request.body or b"{}")
    except ValueError:
        raise Problem(400, "Request body is not valid JSON") from None
    if not isinstance(body, dict):
        raise Problem(400, f"{body!r} is not of type 'object'")
    return body


if __name__ == "__main__":
    sys.exit(main(DENIED, Cumulus))
