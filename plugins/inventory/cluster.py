# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
name: cluster
short_description: Hosts, groups and variables from a cluster model
version_added: "1.0.0"
author: Baremetal MPI RoCE founders (@baremetal)
extends_documentation_fragment: [baremetal.mpi_roce.model]
description:
  - Compiles a cluster model, one YAML file that describes nodes, rails, addresses, leaves, spines,
    storage and launcher, into the groups V(compute), V(launcher), V(storage), V(leaf), V(spine) and
    one V(rack_NAME) per rack, with all host variables that the layers of this collection read.
  - An invalid model is rejected with a list of all errors. Each error has line, key, value and
    remedy. C(docs/cluster-model.md) describes every key, C(docs/cluster.schema.json) for editors.
  - Enables the callback P(baremetal.mpi_roce.summary#callback) for C(ansible-playbook), as the last
    of C(callbacks_enabled), unless E(BAREMETAL_MPI_ROCE_SUMMARY) is V(false).
notes:
  - An invalid model ends the run, whatever the value of C(any_unparsed_is_failed). Set that option
    in section C(inventory) of C(ansible.cfg) anyway. If a file is not YAML or names another plugin,
    this plugin is not called and Ansible continues with an empty inventory;
    M(baremetal.mpi_roce.cluster_directory) then stops the run.
  - An inventory has one model. Ansible ignores names that end in C(.bak) or C(~).
  - This plugin does not run if Ansible reads an exported inventory, as AWX does. Name the callback
    in C(callbacks_enabled) there.
"""

EXAMPLES = r"""
# inventories/example/cluster.yml
plugin: baremetal.mpi_roce.cluster
name: example
management: {subnet: 10.0.0.0/24}
nodes: {count: 4, management_first: 10.0.0.11}
gpus: {count: 8}
rails: {count: 8, speed_gbps: 800}
addresses: {pool: 10.1.0.0/16}
leaves: {count: 8, ports: 64, management_first: 10.0.0.101}
launcher: {name: launcher01, management: 10.0.0.10}
"""

import gc
import os
from pathlib import Path
from typing import Any

from ansible import constants, context
from ansible.module_utils.parsing.convert_bool import BOOLEANS_FALSE
from ansible.plugins.inventory import BaseInventoryPlugin
from ansible.utils.display import Display

from ..plugin_utils import model as cluster_model

try:
    from ansible.template import trust_as_template
except ImportError:  # ansible-core 2.18 trusts what inventory plugins set

    def trust_as_template(value: str) -> str:
        return value


_PARSER_ERROR = 4
"""Ansible's exit status for parser errors."""
SUMMARY = "baremetal.mpi_roce.summary"
SWITCH = "BAREMETAL_MPI_ROCE_SUMMARY"


class InventoryModule(BaseInventoryPlugin):
    NAME = "baremetal.mpi_roce.cluster"

    # Only `vars` of the model go through InventoryData.set_variable: they may be templates.
    trusted_by_default = True

    def verify_file(self, path: str) -> bool:
        try:
            return path.endswith((".yml", ".yaml")) and cluster_model.is_model(Path(path))
        except OSError:
            return True  # `parse` reports it

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        super().parse(inventory, loader, path, cache)
        _enable_summary()
        gc.disable()  # a million values, of which none is garbage
        try:
            self._refuse_second(path)
            cluster = cluster_model.load(path)
            for doubt in cluster.doubts:
                Display().warning(f"{path}: {doubt.text()}")
            self._fill(cluster_model.seal(cluster_model.inventory_of(cluster)))
        except cluster_model.ModelError as error:
            # If this were raised, the errors of `auto`, `yaml` and `ini`, which cannot parse the
            # file either, would follow and push it off the screen.
            Display().error(str(error), wrap_text=False)
            raise SystemExit(_PARSER_ERROR) from None
        except Exception:
            # By default Ansible only warns, continues with an empty inventory, matches no host and
            # reports success. This setting fails the run, whatever the configuration.
            constants.INVENTORY_ANY_UNPARSED_IS_FAILED = True
            raise
        finally:
            gc.enable()
        # Excluded from garbage collection, its pages stay shared with forked workers.
        gc.freeze()

    def _refuse_second(self, path: str) -> None:
        """Refuse a second model: Ansible would merge the hosts of both."""
        for host in self.inventory.hosts.values():
            first = str(host.vars.get("inventory_file"))
            of_model = "cluster_management" in host.vars
            if of_model and os.path.realpath(first) != os.path.realpath(path):
                problem = f"{first} is a cluster model of the same inventory"
                remedy = "Keep one of them: move the copy, or rename it to end in .bak"
                finding = cluster_model.Finding("model.second", (), problem, remedy)
                raise cluster_model.ModelError(path, [finding])

    def _fill(self, compiled: cluster_model.Inventory) -> None:
        inventory = self.inventory
        trusted = _Trusted()

        def set_data(entity: Any, variables: dict[str, Any]) -> None:
            # InventoryData.set_variable would copy and tag each of a million values again.
            for name, value in _mark(variables, trusted).items():
                entity.set_variable(name, value)

        for group, variables in compiled.group_variables.items():
            inventory.add_group(group)
            set_data(inventory.groups[group], variables)
        for group, variables in compiled.site_group_variables.items():
            for name, value in variables.items():
                inventory.set_variable(group, name, value)
        for host in compiled.hosts:
            first, *others = host.groups
            inventory.add_host(host.name, first)
            entity = inventory.hosts[host.name]
            for group in others:
                inventory.groups[group].add_host(entity)
            set_data(entity, host.variables)
            for name, value in host.site_variables.items():
                inventory.set_variable(host.name, name, value)


def _enable_summary() -> None:
    """Enable the callback in ansible-playbook, which reads its inventory before it loads callbacks.

    It is the last one, since it may end the run. Ansible has no other way to enable a callback
    without a configuration file.
    """
    enabled = constants.CALLBACKS_ENABLED
    playbook = "start_at_task" in context.CLIARGS  # an option that only ansible-playbook has
    off = os.environ.get(SWITCH, "").strip().lower() in BOOLEANS_FALSE
    if playbook and not off and SUMMARY not in enabled:
        enabled.append(SUMMARY)


class _Trusted(dict[str, str]):
    """Texts tagged as trusted: without it, `ansible-inventory --list` writes `__ansible_unsafe`.

    The schema allows no braces in names, so no computed value can be a template.
    """

    def __missing__(self, text: str) -> str:
        trusted: str = trust_as_template(text)
        self[text] = trusted
        return trusted


def _mark(value: Any, trusted: _Trusted) -> Any:
    """Tag all strings in `value` as trusted; lists and mappings are changed in place."""
    if isinstance(value, str):
        return trusted[value]
    if isinstance(value, dict):
        for key, item in value.items():
            kind = item.__class__
            if kind is str:  # of a million values most
                value[key] = trusted[item]
            elif kind is not int:
                value[key] = _mark(item, trusted)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            value[index] = _mark(item, trusted)
    return value
