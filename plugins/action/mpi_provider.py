# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Selects the MPI of a host: asks the host for its state, and checks files on the controller."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Optional

from ansible.errors import AnsibleActionFail

from ..module_utils.core.distribution import Distribution, distribution_of
from ..module_utils.core.part import PlanError
from ..module_utils.software.software_set import SoftwareSet
from ..modules.mpi_provider import ARGUMENTS
from ..plugin_utils.actions import NodeAction
from ..plugin_utils.answers import AnswerError
from ..plugin_utils.mpi.providers import (
    Controller,
    FromSource,
    Installation,
    Provider,
    has_doca,
    prefix_of,
    provider_of,
)

MODULE = "baremetal.mpi_roce.mpi_provider"


class ActionModule(NodeAction):
    def act(self, task_vars: Any) -> dict[str, Any]:
        _spec, given = self.validate_argument_spec(argument_spec=ARGUMENTS)
        software = SoftwareSet.of(given["software"])
        facts = task_vars["ansible_facts"]
        rails = bool(given["rails"])
        controller = Controller(
            wheels=Path(task_vars.get("inventory_dir") or ".", software.mpi.wheels),
            cache=Path(given["build_cache"] or "."),
        )
        try:
            distribution = distribution_of(facts["distribution"], facts["distribution_version"])
            host = self._installation(software, distribution, given["python"], task_vars)
            provider = provider_of(
                software.mpi, distribution, has_doca(software, rails), host, controller
            )
            provider.check()
        except PlanError as error:
            raise AnsibleActionFail(f"mpi: {error}") from error
        except AnswerError as error:
            raise AnsibleActionFail(
                f"mpi: {error}, which names files of the controller: find out who has changed its "
                f"{given['python']} before the host is used again"
            ) from None
        packages = given["packages"] or list(provider.packages)
        if not given["packages"] and given["transport"] == "rc" and rails:
            packages += provider.rdma_packages
        return {
            "changed": False,
            "provider": software.mpi.provider,
            "packages": packages,
            "layout": {
                name: value for name, value in asdict(provider.layout).items() if value is not None
            },
            "unpack": [asdict(item) for item in provider.unpack()],
            **_build(provider, given["build_packages"]),
        }

    def _installation(
        self, software: SoftwareSet, distribution: Distribution, python: str, task_vars: Any
    ) -> Optional[Installation]:
        """State of the host; None for the distribution's MPI, which does not depend on it."""
        prefix = prefix_of(software.mpi, distribution)
        if not prefix:
            return None
        arguments = {"prefix": prefix, "mpi4py": software.mpi.mpi4py, "python": python}
        answer = self._execute_module(MODULE, module_args=arguments, task_vars=task_vars)
        if answer.get("failed"):
            raise PlanError(str(answer.get("msg")).removeprefix("mpi: "))
        return Installation.of(answer)


def _build(provider: Provider, packages: list[str]) -> dict[str, Any]:
    """Results for the module mpi_build."""
    if not isinstance(provider, FromSource):
        return {"host": {}, "build": {}}
    host, sources = provider.host, provider.sources
    build = {
        "prefix": provider.prefix,
        "builds": sources.builds,
        "cuda": sources.cuda,
        "pack": str(provider.pack),
        "packages": packages or provider.build_packages,
    }
    return {
        "host": {
            "pack": str(provider.pack),
            "mpi": host.mpi,
            "begun": host.begun,
            "toolkit": host.toolkit,
        },
        "build": {} if host.mpi else build,
    }
