#!/usr/bin/env bash
# Build the images of the virtual nodes, of every family the tests use, and see nodes of each come up.
set -euo pipefail
cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.."
. tools/bootstrap.sh
require_root
bootstrap_apt apt.txt
export PATH=$PWD/.venv/bin:$PATH
inventory=${NODES_INVENTORY:-inventories/virtual-mixed}
ansible-playbook playbooks/virtual_nodes.yml -i "$inventory"
ansible-playbook playbooks/virtual_nodes_down.yml -i "$inventory"
