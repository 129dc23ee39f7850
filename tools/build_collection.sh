#!/usr/bin/env bash
# build_collection.sh DIRECTORY: build the collection from the files that git tracks, or would track.
# DIRECTORY gets the archive, its bill of materials (CycloneDX, from the controller's lock file) and
# tree/, the content of the archive.
set -euo pipefail
directory=$1
cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.."
PATH=$PWD/.venv/bin:$PATH
rm -rf -- "$directory/source" "$directory/tree"
rm -f -- "$directory"/*.tar.gz "$directory"/*.cdx.json
mkdir -p -- "$directory/tree"
tools/copy_tracked.sh . "$directory/source"
ansible-galaxy collection build --output-path "$directory" "$directory/source"
archive=$(echo "$directory"/baremetal-mpi_roce-*.tar.gz)
name=${archive##*/} name=${name%.tar.gz}
printf '[project]\nname = "%s"\nversion = "%s"\n' "${name%-*}" "${name##*-}" >"$directory/source/pyproject.toml"
PYTHONWARNINGS=ignore cyclonedx-py requirements requirements/controller.txt --pyproject "$directory/source/pyproject.toml" \
  --output-reproducible --output-file "$directory/$name.cdx.json"
tar -xzf "$archive" -C "$directory/tree"
cp "$directory/source/galaxy.yml" "$directory/tree/"
rm -rf -- "$directory/source"
