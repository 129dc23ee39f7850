#!/usr/bin/env bash
# The collection as people get it: built, installed elsewhere, and its site playbook read from there.
set -euo pipefail
cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.."
top=$PWD
export PATH=$top/.venv/bin:$PATH
work=$top/build/package
tools/build_collection.sh build/package
rm -rf -- "$work/installed" "$work/elsewhere"
mkdir -p -- "$work/installed" "$work/elsewhere"
archive=$(echo "$work"/baremetal-mpi_roce-*.tar.gz)

echo "== what is in it"
tar -tzf "$archive" | sed 's#/.*#/#' | sort | uniq -c
if tar -tzf "$archive" | grep -E '^(build|collections|molecule|reports|tools)/|^\.(ci|config|git|venv)/'; then
  echo "The archive holds the files above, which belong to a checkout: build_ignore in galaxy.yml."
  exit 1
fi

# No ansible.cfg from here on: what is installed has to stand alone.
cd "$work/elsewhere"
unset ANSIBLE_CONFIG
export ANSIBLE_COLLECTIONS_PATH=$work/installed
ansible-galaxy collection install --offline "$archive" -p "$work/installed"
for inventory in "$top"/inventories/*/cluster.yml; do
  [ -e "$inventory" ] || { echo "There is no inventory under inventories/."; exit 1; }
  echo "== baremetal.mpi_roce.site with $inventory"
  ansible-playbook baremetal.mpi_roce.site --syntax-check -i "$inventory"
  ansible-playbook baremetal.mpi_roce.site --list-tasks -i "$inventory" | tail -n 3
done
