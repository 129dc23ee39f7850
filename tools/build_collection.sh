#!/usr/bin/env bash
# Build the collection from the project's own files, committed or about to be: without links into
# itself, caches and environments. DIRECTORY (made again) gets the archive, and tree/ with its content.
set -euo pipefail
directory=$1
cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.."
PATH=$PWD/.venv/bin:$PATH
rm -rf -- "$directory/source" "$directory/tree"
rm -f -- "$directory"/*.tar.gz
mkdir -p -- "$directory/source" "$directory/tree"
git ls-files -z --cached --others --exclude-standard |
  while IFS= read -r -d '' file; do
    case "$file" in collections/*) continue ;; esac
    if [ -e "$file" ]; then printf '%s\0' "$file"; fi
  done |
  tar --null -T - -cf - | tar -xf - -C "$directory/source"
ansible-galaxy collection build --output-path "$directory" "$directory/source"
tar -xzf "$directory"/baremetal-mpi_roce-*.tar.gz -C "$directory/tree"
cp "$directory/source/galaxy.yml" "$directory/tree/"
rm -rf -- "$directory/source"
