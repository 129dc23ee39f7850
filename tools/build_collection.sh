#!/usr/bin/env bash
# Build the collection from the project's own files, committed or about to be: without links into
# itself, caches and environments. DIRECTORY (made again) gets the archive, its bill of materials
# (CycloneDX: what the controller's lock installs), and tree/ with its content.
set -euo pipefail
directory=$1
cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.."
PATH=$PWD/.venv/bin:$PATH
rm -rf -- "$directory/source" "$directory/tree"
rm -f -- "$directory"/*.tar.gz "$directory"/*.cdx.json
mkdir -p -- "$directory/source" "$directory/tree"
git ls-files -z --cached --others --exclude-standard |
  while IFS= read -r -d '' file; do
    case "$file" in collections/*) continue ;; esac
    if [ -e "$file" ]; then printf '%s\0' "$file"; fi
  done |
  tar --null -T - -cf - | tar -xf - -C "$directory/source"
ansible-galaxy collection build --output-path "$directory" "$directory/source"
archive=$(echo "$directory"/baremetal-mpi_roce-*.tar.gz)
name=${archive##*/} name=${name%.tar.gz}
printf '[project]\nname = "%s"\nversion = "%s"\n' "${name%-*}" "${name##*-}" >"$directory/source/pyproject.toml"
PYTHONWARNINGS=ignore cyclonedx-py requirements requirements/controller.txt --pyproject "$directory/source/pyproject.toml" \
  --output-reproducible --output-file "$directory/$name.cdx.json"
tar -xzf "$archive" -C "$directory/tree"
cp "$directory/source/galaxy.yml" "$directory/tree/"
rm -rf -- "$directory/source"
