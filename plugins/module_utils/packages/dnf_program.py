# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A program that uses dnf's library, with JSON as input and output.

It runs as `python3 -c COMMAND` under dnf's own interpreter, and reads this file and a request from
standard input, so it imports nothing from the collection. The same code simulates and applies a
transaction, and reports failed scriptlets, which dnf's exit status ignores.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import re
import shutil
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, Callable
from urllib.parse import quote

COMMAND = (
    "import json, sys; request = json.load(sys.stdin); space = {'__name__': 'dnf_program'}; "
    "exec(compile(request.pop('program'), 'dnf_program', 'exec'), space); space['answer'](request)"
)
OURS = "baremetal-mpi-roce-"
WRITING = ["subscription-manager", "product-id", "upload-profile"]
"""Plugins that write on the node even if nothing is installed; off while planning."""
INTERACTIVE = ["show-leaves"]
"""Plugins that fail outside the dnf command."""


class DnfRefusedError(Exception):
    """The text is the reason."""


class DnfSession:
    """One dnf.Base, configured as on the command line, with the changes of one request."""

    def __init__(self, request: dict[str, Any], *, writes: bool) -> None:
        self.dnf: Any = importlib.import_module("dnf")
        for name in ("dnf.rpm", "dnf.lock", "dnf.module.module_base", "dnf.goal", "dnf.callback"):
            importlib.import_module(name)
        self.request = request
        self.errors = Errors()
        logger = logging.getLogger("dnf")
        logger.handlers = [self.errors]
        logger.propagate = False
        self.base = self.dnf.Base()
        self.configure(request)
        if writes:
            self.base.setup_loggers()
            logger.addHandler(self.errors)
        self.base.init_plugins(disabled_glob=[*INTERACTIVE, *([] if writes else WRITING)])
        self.base.pre_configure_plugins()
        self.base.read_all_repos()
        self.base.configure_plugins()

    def configure(self, request: dict[str, Any]) -> None:
        conf, root = self.base.conf, request["root"]
        if root != "/":
            conf.installroot = root
            conf.config_file_path = f"{root}/etc/dnf/dnf.conf"
            conf.reposdir = [f"{root}/etc/yum.repos.d"]
            conf.pluginconfpath = [f"{root}/etc/dnf/plugins"]
            conf.persistdir = f"{root}/var/lib/dnf"
            conf.cachedir = f"{root}/var/cache/dnf"
            conf.logdir = f"{root}/var/log"
        conf.read()
        conf.substitutions.update_from_etc(installroot=root, varsdir=conf.varsdir)
        release = self.dnf.rpm.detect_releasever(root)
        if not conf.substitutions.get("releasever"):
            conf.substitutions["releasever"] = release or ""
        private = request.get("private")
        if private:  # planning: only metadata are written on the node
            conf.logdir, conf.persistdir = private, f"{private}/state"
            conf.pluginconfpath = [*conf.pluginconfpath, f"{private}/plugins"]
        Path(conf.logdir).mkdir(parents=True, exist_ok=True)
        conf.assumeyes = True
        conf.best = True
        conf.install_weak_deps = False
        conf.clean_requirements_on_remove = False
        conf.exit_on_lock = False  # dnf makecache locks briefly; the request has a time limit
        conf.comment = request.get("comment", "")
        self.base.args = [conf.comment]

    def fill(self) -> None:
        self.base.fill_sack(load_system_repo="auto")
        self.enable_streams()

    def hide_other_releases(self) -> None:
        """Hide all other versions of packages for which the set has a version."""
        available = self.base.sack.query().available()
        ours = [repo.id for repo in self.base.repos.iter_enabled() if repo.id.startswith(OURS)]
        versions = set(self.request["versions"])
        same = [one for one in available.filter(reponame=ours) if one.evr in versions]
        if same:
            named = available.filter(name=[one.name for one in same])
            self.base.sack.add_excludes(named.difference(named.filter(pkg=same)))

    def start_again(self) -> None:
        # base.reset() would forget the enabled streams.
        self.base._goal = self.dnf.goal.Goal(self.base.sack)
        self.base._goal.protect_running_kernel = self.base.conf.protect_running_kernel
        self.mark()

    def enable_streams(self) -> None:
        """Enable streams in memory; only writing actions save them."""
        wanted = self.request.get("streams", {})
        if not wanted:
            return
        container = self.base._moduleContainer
        modules = self.dnf.module.module_base.ModuleBase(self.base)
        for module, stream in wanted.items():
            spec = f"{module}:{stream}"
            if not modules.get_modules(spec)[0]:
                raise DnfRefusedError(
                    f"no repository of this node has the module stream {spec}. A mirror needs the "
                    "module metadata (modules.yaml) of the original"
                )
            if container.getEnabledStream(module) not in ("", stream):
                # As `dnf module reset` and `enable`, for which dnf reports an error in one process.
                container.reset(module)
                container.enable(module, stream, False)
            modules.enable([spec])

    def architectures(self) -> list[str]:
        return [self.base.conf.substitutions["basearch"], "noarch"]

    def versions(self, names: list[str]) -> dict[str, list[tuple[str, str]]]:
        query = self.base.sack.query().available().filter(arch=self.architectures())
        found = {name: sorted(query.filter(name=name), reverse=True) for name in names}
        return {name: [(one.evr, one.repoid) for one in found[name]] for name in names}

    def find(self, name: str, version: str) -> Any:
        query = self.base.sack.query().available().filterm(name=name, arch=self.architectures())
        there = [one for one in query if one.evr == version]
        if there:
            return min(there, key=lambda one: (one.repo.priority, one.repo.cost, one.repoid))
        raise DnfRefusedError(
            f"{name}-{version} is in no repository of this node, or hidden from dnf: by a lock "
            "(dnf versionlock list), by excludepkgs, by a module stream (dnf module list --enabled)"
        )

    def mark(self) -> None:
        installed = self.base.sack.query().installed()
        for name in self.request.get("remove", []):
            for package in installed.filter(name=name):
                self.base.package_remove(package)
        for name, version in self.request.get("exact", {}).items():
            same = [one for one in installed.filter(name=name) if one.evr == version]
            if not same:
                self.base.package_install(self.find(name, version))

    def changes(self) -> list[dict[str, str]]:
        """The transaction as data; an obsoleted package counts as removed."""
        found: dict[tuple[str, str], dict[str, str]] = {}
        for item in self.base.transaction:
            name, arch = item.pkg.name, item.pkg.arch
            change = found.setdefault((name, arch), {"name": name, "before": "", "after": ""})
            if item.action == self.dnf.transaction.PKG_DOWNGRADE:
                change["kind"] = "downgrade"
            if item.action in self.dnf.transaction.FORWARD_ACTIONS:
                change["after"] = item.pkg.evr
            elif item.action in self.dnf.transaction.BACKWARD_ACTIONS:
                change["before"] = item.pkg.evr
        return [change for change in found.values() if change["before"] or change["after"]]

    def resolve(self, *, allow_erasing: bool) -> list[dict[str, str]]:
        return self.changes() if self.base.resolve(allow_erasing=allow_erasing) else []

    def download(self) -> None:
        """Fetch all packages and verify their signatures before any change."""
        packages = list(self.base.transaction.install_set)
        self.base.download_packages(packages)
        bad = []
        for package in packages:
            result, message = self.base.package_signature_check(package)
            if result == 1 and not package.repoid.startswith(OURS):
                # Like `dnf -y` for a repository whose key file is on the node.
                self.base.package_import_key(package)
                result, message = self.base.package_signature_check(package)
            if result:
                keys = " ".join(self.base.repos[package.repoid].gpgkey)
                bad.append(
                    f"{package} of repository {package.repoid}: {one_line(message)}; its packages "
                    f"must be signed by {keys or 'a key, and none is named'}"
                )
        if bad:
            raise DnfRefusedError("; ".join(bad))

    def transact(self) -> None:
        """Run the transaction. Unlike in dnf, a failed scriptlet is an error."""
        errors: list[str] = []
        lines = self.errors.lines

        class Listening(self.dnf.callback.TransactionProgress):  # type: ignore[name-defined]
            def error(self, message: Any) -> None:
                errors.append(one_line(message))

            def scriptout(self, msgs: Any) -> None:
                text = msgs.decode(errors="replace") if isinstance(msgs, bytes) else str(msgs or "")
                lines.extend(line for line in map(one_line, text.splitlines()) if line)

        try:
            self.base.do_transaction(Listening())
        except self.dnf.exceptions.Error as error:
            errors.insert(0, one_line(error))
        if errors:
            raise DnfRefusedError(cause(errors, lines))

    def close(self) -> None:
        self.base.close()


class Errors(logging.Handler):
    """What dnf logs as errors, the only source of rpm's own messages."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(one_line(record.getMessage()))


def cause(errors: list[str], lines: list[str]) -> str:
    """Errors with relevant script output; later scripts (dracut) may print more."""
    telling = [
        line for line in lines if re.search("error|fail|fatal|no space|not found", line, re.I)
    ]
    return "; ".join(dict.fromkeys([*errors, *telling[-10:], *lines[-10:]]))


def one_line(text: Any) -> str:
    return " ".join(str(text).split())


def refresh(request: dict[str, Any]) -> dict[str, Any]:
    errors = {}
    with closing(DnfSession(request, writes=False)) as session:
        for repo in session.base.repos.iter_enabled():
            if repo.id in request["repositories"]:
                try:
                    with session.dnf.lock.build_metadata_lock(session.base.conf.cachedir, False):
                        # libdnf trusts every key that it ever imported, even one that was replaced.
                        keys = Path(repo._repo.getCachedir(), "pubring")
                        shutil.rmtree(keys, ignore_errors=True)
                        repo._repo.expire()
                        repo.load()
                except (session.dnf.exceptions.Error, RuntimeError) as error:
                    errors[repo.id] = one_line(error)
    return {"errors": errors}


def locations(request: dict[str, Any]) -> dict[str, Any]:
    with closing(DnfSession(request, writes=False)) as session:
        repos = [(repo, repo.baseurl) for repo in session.base.repos.iter_enabled()]
        repos += [(session.base.conf, [url]) for url in request["urls"]]
        return {"locations": [location(*each) for each in repos]}


def location(conf: Any, bases: list[str]) -> dict[str, Any]:
    mirrors = getattr(conf, "metalink", "") or getattr(conf, "mirrorlist", "")
    login = ":".join(quote(word or "") for word in (conf.proxy_username, conf.proxy_password))
    urls = [f"{base.rstrip('/')}/repodata/repomd.xml" for base in bases]
    return {
        "urls": [mirrors] if mirrors else urls,
        "proxy": (conf.proxy or "").replace("://", f"://{login}@" if login != ":" else "://", 1),
        "ca": conf.sslcacert or "",
        "client": [each for each in (conf.sslclientcert, conf.sslclientkey) if each],
        "needed": not conf.skip_if_unavailable
        and bool(conf.sslverify)
        and not (conf.proxy or "").startswith("socks"),
    }


def available(request: dict[str, Any]) -> dict[str, Any]:
    with closing(DnfSession(request, writes=False)) as session:
        session.fill()
        return {"versions": session.versions(request["names"])}


def simulate(request: dict[str, Any]) -> dict[str, Any]:
    """The transaction, including removals that it needs and that were not requested."""
    refusal = ""
    with closing(DnfSession(request, writes=False)) as session:
        session.fill()
        session.hide_other_releases()
        for allow_erasing in (False, True):
            try:
                session.start_again()
                return {"changes": session.resolve(allow_erasing=allow_erasing)}
            except session.dnf.exceptions.Error as error:
                refusal = refusal or one_line(error)
    raise DnfRefusedError(refusal)


def apply(request: dict[str, Any]) -> dict[str, Any]:
    """Carry out the transaction; only named and obsoleted packages are removed."""
    with closing(DnfSession(request, writes=True)) as session:
        session.fill()
        session.mark()
        if session.resolve(allow_erasing=False):
            session.download()
        session.transact()
        return {}


def switch(request: dict[str, Any]) -> dict[str, Any]:
    """Enable module streams on disk without changing a package."""
    with closing(DnfSession(request, writes=True)) as session:
        session.fill()
        if session.resolve(allow_erasing=False):
            raise DnfRefusedError("enabling a module stream would change packages")
        session.transact()
        return {}


def reinstall(request: dict[str, Any]) -> dict[str, Any]:
    """Reinstall packages to rerun their scriptlets; `missing` lists those in no repository."""
    missing = []
    with closing(DnfSession(request, writes=True)) as session:
        session.fill()
        available = session.base.sack.query().available()
        for name, evr, arch in request["packages"]:
            there = [one for one in available.filter(name=name, arch=arch) if one.evr == evr]
            if there:
                session.base.package_reinstall(there[0])
            else:
                missing.append(f"{name}-{evr}.{arch}")
        if not missing and session.resolve(allow_erasing=False):
            session.download()
            session.transact()
    return {"missing": missing}


ACTIONS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "apply": apply,
    "available": available,
    "locations": locations,
    "refresh": refresh,
    "reinstall": reinstall,
    "simulate": simulate,
    "switch": switch,
}


def answer(request: dict[str, Any]) -> None:
    """Write the reply as the only output; what dnf's plugins print goes to standard error."""
    reply_to = os.dup(1)
    os.dup2(2, 1)
    reply: dict[str, Any] = {}
    try:
        reply = {"done": ACTIONS[request["action"]](request)}
    except DnfRefusedError as error:
        reply = {"refused": str(error)}
    except importlib.import_module("dnf.exceptions").Error as error:
        reply = {"refused": one_line(error)}
    sys.stdout.flush()
    with open(reply_to, "w", encoding="utf-8") as stream:
        json.dump(reply, stream)
