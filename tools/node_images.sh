#!/usr/bin/env bash
# Build the images of the virtual nodes of an inventory:
#   node_images.sh [machines]     images of containers, or the disk of machines
set -euo pipefail
cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.."
. tools/bootstrap.sh
require_root
if [ "${1-}" = machines ]; then
  bootstrap_apt apt.txt apt-machines.txt
  inventories=${MACHINES_INVENTORY:-inventories/virtual-rdma}
else
  bootstrap_apt apt.txt apt-test.txt
  # The stand-ins of GPU nodes, and the inventory of the Molecule scenarios that use them.
  .venv/bin/python -m tests.bed.stand_ins >&2
  # The second one has switches.
  inventories="${NODES_INVENTORY:-inventories/virtual-mixed} inventories/virtual"
fi
export PATH=$PWD/.venv/bin:$PATH
for inventory in $inventories; do
  ansible-playbook baremetal.bed.virtual_nodes -i "$inventory" -e virtual_nodes_state=built
done
