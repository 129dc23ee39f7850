# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Layers and their roles. Generated from layers/*.yml by tools/generate_layers.py."""

from __future__ import annotations

ROLES = {
    "names": "baremetal.mpi_roce.cluster_hosts",
    "os": "baremetal.mpi_roce.os_baseline",
    "rdma": "baremetal.mpi_roce.rdma_stack",
    "gpu": "baremetal.mpi_roce.nvidia_gpu",
    "rails": "baremetal.mpi_roce.roce_rails",
    "fabric": "baremetal.mpi_roce.switch_qos",
    "links": "baremetal.mpi_roce.fabric_links",
    "storage": "baremetal.mpi_roce.shared_storage",
    "mpi": "baremetal.mpi_roce.mpi_stack",
    "hostfile": "baremetal.mpi_roce.mpi_hostfile",
    "ssh": "baremetal.mpi_roce.ssh_trust",
    "node_check": "baremetal.mpi_roce.node_check",
    "slurm": "baremetal.mpi_roce.slurm",
    "monitoring": "baremetal.mpi_roce.monitoring",
    "verbs": "baremetal.mpi_roce.rdma_verify",
    "smoke": "baremetal.mpi_roce.mpi_smoke",
}
"""Role of each layer of site.yml, by the layer's tag and in the order of site.yml."""
MEASURING = ["links", "verbs", "smoke"]
"""Layers of site.yml that configure nothing: other layers repair what they find."""
PULLED = ["os", "rdma", "gpu", "rails", "mpi", "node_check"]
"""Layers that playbooks/pull.yml verifies on a node, from nothing but its own variables."""
HOSTS = {
    "names": ["compute", "launcher", "storage"],
    "os": ["compute", "launcher"],
    "rdma": ["compute"],
    "gpu": ["compute"],
    "rails": ["compute"],
    "fabric": ["leaf", "spine"],
    "links": ["compute", "leaf", "spine"],
    "storage": ["storage", "compute", "launcher"],
    "mpi": ["compute", "launcher"],
    "hostfile": ["launcher"],
    "ssh": ["compute", "launcher"],
    "node_check": ["compute"],
    "slurm": ["launcher", "compute"],
    "monitoring": ["compute", "launcher", "storage"],
    "verbs": ["compute"],
    "smoke": ["launcher"],
}
"""Groups of hosts on which each layer of site.yml runs."""
SHARED = ["names", "os", "rdma", "gpu", "rails", "mpi", "node_check"]
"""Layers of site.yml that look at each host separately, without state of the controller."""
TAGS = ["preflight", *ROLES, "job", "bench", "burn", "acceptance", "audit", "reboot", "pull"]
"""Values of `layer` in the results of modules."""
RENAMED = {
    "os_baseline_apt_cache_valid": "os_baseline_apt_cache_valid_s",
    "os_baseline_sysctls_extra": "os_baseline_extra_sysctls",
    "os_baseline_time_max_offset": "os_baseline_time_max_offset_s",
    "os_baseline_time_wait": "os_baseline_time_wait_s",
    "nvidia_gpu_fabric_wait": "nvidia_gpu_fabric_wait_s",
    "roce_rails_wait": "roce_rails_wait_s",
    "roce_rails_boot_wait": "roce_rails_boot_wait_s",
    "ssh_trust_state_dir": "ssh_trust_state_directory",
    "ssh_trust_probe_timeout": "ssh_trust_probe_timeout_s",
    "rdma_verify_seconds": "rdma_verify_duration_s",
}
"""Former names of role options. They are refused, with the present name, for one release."""
LOOK = {
    "names": ("cluster_hosts", "whole"),
    "os": ("os_baseline", "host"),
    "rdma": ("rdma_stack", "host"),
    "gpu": ("nvidia_gpu", "host"),
    "rails": ("roce_rails", "host"),
    "storage": ("shared_storage", "whole"),
    "mpi": ("mpi_stack", "host"),
    "hostfile": ("mpi_hostfile", "whole"),
    "ssh": ("ssh_trust", "host"),
    "node_check": ("node_check", "host"),
    "slurm": ("slurm", "whole"),
}
"""Layers that one look at a host covers, in order: the module, and whether its options depend on
the variables of the host only (`host`) or of all hosts (`whole`)."""
