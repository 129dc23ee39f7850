#!/usr/bin/env bash
# ansible-test sanity over what the built collection holds, with this venv's Python. What cannot run
# here is named.
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
if ! command -v pwsh >/dev/null; then
  echo "skipped: pslint (it needs pwsh, and there is no PowerShell in this collection)"
  skip+=(--skip-test pslint)
fi
if ! command -v shellcheck >/dev/null; then
  echo "skipped: shellcheck (it is not installed)"
  skip+=(--skip-test shellcheck)
fi
cd "$tree"
git init -q . && git add -A # ansible-test asks git which files there are
python=$("$bin/python" -c 'import sys; print("{}.{}".format(*sys.version_info))')
exec ansible-test sanity --color no --python "$python" --requirements "${skip[@]}" "$@"
