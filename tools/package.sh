#!/usr/bin/env bash
# The collection as people get it: built, installed elsewhere, and its site playbook read from there.
set -euo pipefail
cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.."
top=$PWD
export PATH=$top/.venv/bin:$PATH
work=$top/build/package
tools/export.sh "$work/source"
rm -rf -- "$work/installed" "$work/elsewhere" "$work"/*.tar.gz
mkdir -p -- "$work/installed" "$work/elsewhere"
ansible-galaxy collection build --force --output-path "$work" "$work/source"
archive=$(echo "$work"/baremetal-mpi_roce-*.tar.gz)

echo "Nothing that belongs to a checkout or to tests of this machine may be in it:"
if tar -tzf "$archive" | grep -E '^(\.|build/|collections/|reports/)' | grep -v -E '^\.(ansible-lint|yamllint)$'; then
  echo "The archive holds the files above: add them to build_ignore in galaxy.yml."
  exit 1
fi

# No ansible.cfg from here on: what is installed has to stand alone.
cd "$work/elsewhere"
export ANSIBLE_CONFIG=/dev/null ANSIBLE_COLLECTIONS_PATH=$work/installed
ansible-galaxy collection install --offline "$archive" -p "$work/installed"
for inventory in "$top"/inventories/*/cluster.yml; do
  [ -e "$inventory" ] || { echo "There is no inventory under inventories/."; exit 1; }
  echo "== baremetal.mpi_roce.site with $inventory"
  ansible-playbook baremetal.mpi_roce.site --syntax-check -i "$inventory"
  ansible-playbook baremetal.mpi_roce.site --list-tasks -i "$inventory" | tail -n 3
done
