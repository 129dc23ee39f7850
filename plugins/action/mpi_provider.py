# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Selects the MPI of a host: asks the host for its state, and checks files on the controller."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

from ansible.errors import AnsibleActionFail

from ..module_utils.core.distribution import Distribution, distribution_of
from ..module_utils.core.part import PlanError
from ..module_utils.software.software_set import DOCA, SoftwareSet
from ..modules.mpi_provider import ARGUMENTS
from ..plugin_utils.actions import NodeAction
from ..plugin_utils.answers import AnswerError
from ..plugin_utils.mpi.providers import Installation, prefix_of, provider_of

MODULE = "baremetal.mpi_roce.mpi_provider"


class ActionModule(NodeAction):
    def act(self, task_vars: Any) -> dict[str, Any]:
        _spec, given = self.validate_argument_spec(argument_spec=ARGUMENTS)
        software = SoftwareSet.of(given["software"])
        facts, rails, mpi = task_vars["ansible_facts"], bool(given["rails"]), software.mpi
        wheels = Path(task_vars.get("inventory_dir") or ".", mpi.wheels)
        cache = Path(given["build_cache"] or ".")
        # A launcher without rails has no packages of DOCA.
        doca = software.rdma.source == DOCA and rails
        try:
            distribution = distribution_of(facts["distribution"], facts["distribution_version"])
            host = self._installation(software, distribution, given["python"], task_vars)
            provider = provider_of(mpi, distribution, doca, host, wheels, cache)
        except PlanError as error:
            raise AnsibleActionFail(f"mpi: {error}") from error
        except AnswerError as error:
            raise AnsibleActionFail(
                f"mpi: {error}, which names files of the controller: find out who has changed its "
                f"{given['python']} before the host is used again"
            ) from None
        packages: list[str] = given["packages"]
        if not packages:
            rdma = provider.rdma_packages if given["transport"] == "rc" and rails else ()
            packages = [*provider.packages, *rdma]
        build: dict[str, Any] = {}
        of_host: dict[str, Any] = {}
        if host and provider.pack and mpi.sources is not None:
            state = {name: getattr(host, name) for name in ("mpi", "begun", "toolkit")}
            of_host = {"pack": provider.pack, **state}
            build = {
                "prefix": mpi.sources.prefix,
                "builds": mpi.sources.builds,
                "cuda": mpi.sources.cuda,
                "pack": provider.pack,
                "packages": given["build_packages"] or [*provider.build_packages],
            }
        return {
            "changed": False,
            "provider": mpi.provider,
            "packages": packages,
            "layout": provider.layout,
            "unpack": [*provider.unpack],
            "host": of_host,
            "build": {} if of_host.get("mpi") else build,
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
