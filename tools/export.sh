#!/usr/bin/env bash
# Copy the project's own files, committed or about to be, to DIRECTORY (made anew): the tree as a
# collection wants it, without links into itself, caches and environments.
set -euo pipefail
directory=$1
cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.."
rm -rf -- "$directory"
mkdir -p -- "$directory"
git ls-files -z --cached --others --exclude-standard |
  while IFS= read -r -d '' file; do
    case "$file" in collections/*) continue ;; esac
    if [ -e "$file" ]; then printf '%s\0' "$file"; fi
  done |
  tar --null -T - -cf - | tar -xf - -C "$directory"
