#!/usr/bin/env bash
# ansible-test sanity over what the built collection holds, with this venv's Python:
#   sanity.sh [--all] [WORDS OF ANSIBLE-TEST...]
# What cannot run here is named. Without --all, so is what other stages of ./test show already: each
# such test costs an environment of its own.
set -euo pipefail
cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.."
bin=$PWD/.venv/bin
export PATH=$bin:$PATH
tree=$PWD/build/sanity/ansible_collections/baremetal/mpi_roce
tools/build_collection.sh build/sanity/collection
rm -rf -- "$tree"
mkdir -p -- "$(dirname -- "$tree")"
mv build/sanity/collection/tree "$tree"

# ansible-test keeps its environments and caches under HOME; these stay inside build/.
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
without() { # TESTS WHY
  local test
  echo "skipped: $1 ($2)"
  for test in $1; do skip+=(--skip-test "$test"); done
}
command -v pwsh >/dev/null || without pslint "it needs pwsh, and there is no PowerShell in this collection"
if [ "${1-}" = --all ]; then
  shift
  command -v shellcheck >/dev/null || without shellcheck "it is not installed"
else
  without "changelog pep8 pylint shellcheck yamllint" "stages of ./test look at that; --all has them"
fi
cd "$tree"
git init -q . && git add -A # ansible-test asks git which files there are
python=$("$bin/python" -c 'import sys; print("{}.{}".format(*sys.version_info))')
exec ansible-test sanity --color no --python "$python" --requirements "${skip[@]}" "$@"
