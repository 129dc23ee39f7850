#!/usr/bin/env bash
# ansible-test sanity over the built collection and over the test bed, with this venv's Python:
#   sanity.sh [--all] [ARGUMENTS OF ANSIBLE-TEST...]
# Tests that are left out are named. Without --all these include what other stages of ./test cover,
# since each test sets up an environment.
set -euo pipefail
cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.."
bin=$PWD/.venv/bin
export PATH=$bin:$PATH
trees=$PWD/build/sanity/ansible_collections/baremetal
tools/build_collection.sh build/sanity/collection
rm -rf -- "$trees"
mkdir -p -- "$trees"
mv build/sanity/collection/tree "$trees/mpi_roce"
tools/copy_tracked.sh tests/bed "$trees/bed"

# ansible-test writes its environments and caches to HOME: use a folder below build/.
if [ -z "${PIP_CONFIG_FILE-}" ]; then
  for settings in "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf"; do
    if [ -f "$settings" ]; then export PIP_CONFIG_FILE=$settings; fi
  done
fi
export HOME=$PWD/build/sanity/home
mkdir -p "$HOME/.ansible/test/cache"
version=$("$bin/python" - <<'PY'
import sys
from ansible_test._internal.python_requirements import get_venv_packages
from ansible_test._internal.host_configs import NativePythonConfig
python = NativePythonConfig(version="{}.{}".format(*sys.version_info), path=sys.executable)
print(get_venv_packages(python)["pip"].replace(".", "_"))
PY
)
cp tools/get_pip.py "$HOME/.ansible/test/cache/get_pip_$version.py"

skip=()
without() { # TESTS REASON
  local test
  echo "skipped: $1 ($2)"
  for test in $1; do skip+=(--skip-test "$test"); done
}
command -v pwsh >/dev/null || without pslint "it needs pwsh, and there is no PowerShell in this collection"
if [ "${1-}" = --all ]; then
  shift
  command -v shellcheck >/dev/null || without shellcheck "it is not installed"
else
  without "changelog pep8 pylint shellcheck yamllint" "covered by other stages of ./test; --all runs them"
fi
python=$("$bin/python" -c 'import sys; print("{}.{}".format(*sys.version_info))')
status=0
for name in mpi_roce bed; do
  echo "== baremetal.$name"
  cd "$trees/$name"
  git init -q . && git add -A # ansible-test asks git for the list of files
  ansible-test sanity --color no --python "$python" --requirements "${skip[@]}" "$@" || status=$?
done
exit "$status"
