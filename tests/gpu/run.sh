#!/usr/bin/env bash
# Run every test that is marked gpu, in at most 10 minutes: tests/gpu/run.sh [OPTION OF PYTEST...]
#
# Installs nothing, and needs no internet: PYTHON (python3) has pytest, hypothesis, numpy and PyYAML, for the example
# PyTorch. CUDA's libraries are those of the toolkit, or else of Python's packages. CUDA_PERFTEST and NCCL_TESTS name
# programs, and RESULTS a directory for gpu.xml. Tests whose program is missing are skipped, and listed; those of
# products of matrices must run.
set -euo pipefail
cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.."

python=${PYTHON:-python3}
if ! [ -e /dev/nvidiactl ]; then
  echo "tests/gpu/run.sh: no NVIDIA GPU: /dev/nvidiactl does not exist" >&2
  exit 3
fi
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

# Packages of Python have libraries without the link by which programs find them.
libraries() {
  local name found
  mkdir -p "$work/lib"
  for name in cudart cublas cublasLt; do
    found=$("$python" - "$name" <<'TEXT'
import glob
import sys

folders = [f"{folder}/nvidia/**/lib" for folder in sys.path if folder]
found = [path for folder in folders for path in glob.glob(f"{folder}/lib{sys.argv[1]}.so*", recursive=True)]
print(max(found, default=""))
TEXT
)
    [ -n "$found" ] || return 0
    ln -s -- "$found" "$work/lib/lib$name.so"
  done
  export CUDA_LIBRARIES="$work/lib"
  # cuBLAS loads cuBLASLt by its versioned name.
  LD_LIBRARY_PATH="$(dirname -- "$(readlink -f -- "$work/lib/libcublas.so")")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  export LD_LIBRARY_PATH
}

if [ -z "${CUDA_LIBRARIES:-}" ] && ! compgen -G '/usr/local/cuda*/lib64/libcublas.so' >/dev/null &&
  ! compgen -G '/usr/local/cuda*/targets/x86_64-linux/lib/libcublas.so' >/dev/null; then
  libraries
fi

nvidia-smi --query-gpu=name,driver_version,serial,pci.bus_id --format=csv || true
status=0
PYTHONPATH=collections:. timeout --kill-after=10 "${LIMIT_S:-580}" \
  "$python" -m pytest -p no:xdist -m gpu -rs -vv --durations=15 --junitxml="$work/gpu.xml" "$@" tests/gpu || status=$?
if [ -n "${RESULTS:-}" ]; then
  cp -- "$work/gpu.xml" "$RESULTS/gpu.xml" || true
fi
"$python" - "$work/gpu.xml" <<'TEXT' || status=1
import sys
import xml.etree.ElementTree as ET

cases = [case for case in ET.parse(sys.argv[1]).iter("testcase") if "products" in case.get("name", "")]
if not any(case.find("skipped") is None for case in cases):
    sys.exit("tests/gpu/run.sh: no product of matrices was tested")
TEXT
exit "$status"
