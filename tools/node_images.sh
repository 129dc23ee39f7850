#!/usr/bin/env bash
# Build the images of the virtual nodes of an inventory, and see its nodes come up:
#   node_images.sh [machines]     containers of both families, or machines
set -euo pipefail
cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.."
. tools/bootstrap.sh
require_root
if [ "${1-}" = machines ]; then
  bootstrap_apt apt.txt apt-machines.txt
  inventory=${MACHINES_INVENTORY:-inventories/virtual-rdma}
else
  bootstrap_apt apt.txt apt-test.txt
  # What nodes that play GPU nodes get, and the inventory of Molecule's.
  .venv/bin/python -m tests.stand_ins >&2
  inventory=${NODES_INVENTORY:-inventories/virtual-mixed}
fi
export PATH=$PWD/.venv/bin:$PATH
ansible-playbook playbooks/virtual_nodes.yml -i "$inventory"
ansible-playbook playbooks/virtual_nodes_down.yml -i "$inventory"
