#!/usr/bin/env bash
# Test the collection as users get it: build it, install it elsewhere, and read its site playbook
# there; also what ansible-builder creates of it for an execution environment, without a registry.
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
part='changelogs/changelog\.yaml|changelogs/config\.yaml|docs/.*\.md|docs/(cluster|drift)\.schema\.json|docs/images/.*\.png'
part+='|docs/monitoring/.*\.(json|yml)|docs/examples/.*\.(py|sbatch|yml|service|timer)|awx/.*\.yml'
part+='|requirements/(audit|controller)\.txt'
part+='|layers/.*\.yml|(inventories|meta|playbooks|plugins|roles|tests/sanity)/.*'
part+='|[A-Z]*(\.md|\.json)?|ansible\.cfg|site\.yml|(bindep|requirements)\.txt'
if tar -tzf "$archive" | grep -v '/$' | grep -vxE "$part"; then
  echo "The archive holds the files above, which belong to a checkout: build_ignore in galaxy.yml."
  exit 1
fi

# From here on without ansible.cfg: the installed collection must not depend on it.
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

echo "== in an execution environment"
# These commands are those of the Containerfile for collections, in its context.
context=$work/context
rm -rf -- "$context"
ansible-builder create --file "$top/execution-environment.yml" --context "$context" --output-filename Containerfile
cd "$context/_build"
export ANSIBLE_COLLECTIONS_PATH=$context/content # the previous path has the collection already
ansible-galaxy collection install --offline --requirements-file requirements.yml
ansible-builder introspect "$context/content" --user-pip requirements.txt \
  --write-pip "$context/pip.txt" --write-bindep "$context/bindep.txt"
for list in pip bindep; do
  grep -q "from collection baremetal.mpi_roce" "$context/$list.txt" ||
    { echo "The collection brings nothing to $list.txt: requirements.txt, bindep.txt"; exit 1; }
done
# This venv has all packages at the tested versions, so no index is used. Its ansible-core may
# differ (ANSIBLE_CORE).
grep -v '^ansible-core==' "$context/pip.txt" >"$context/rest.txt"
pip install --quiet --no-index --dry-run --requirement "$context/rest.txt"
