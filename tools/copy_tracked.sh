#!/usr/bin/env bash
# copy_tracked.sh FOLDER TARGET: copy the files of a folder that git tracks, or would track, to
# TARGET. Caches, environments and the links under collections/ are left out.
set -euo pipefail
target=$(realpath -m -- "$2")
cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../$1"
mkdir -p -- "$target"
git ls-files -z --cached --others --exclude-standard |
  while IFS= read -r -d '' file; do
    case "$file" in collections/*) continue ;; esac
    if [ -e "$file" ]; then printf '%s\0' "$file"; fi
  done |
  tar --null -T - -cf - | tar -xf - -C "$target"
