#!/usr/bin/env bash
# Puts a newer lavapipe than Debian 12's own, which has no sparse buffers, into build/lavapipe. It comes from
# bookworm-backports.
set -euo pipefail
cd -P "$(dirname "$0")/.."
target=$PWD/build/lavapipe
[ -f "$target/lvp_icd.json" ] && exit 0
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT
scripts/get_from_backports.sh "$files" mesa-vulkan-drivers
mkdir -p "$target"
cp "$files"/usr/lib/*/libvulkan_lvp.so "$target"/
cat >"$target/lvp_icd.json" <<JSON
{"file_format_version": "1.0.0", "ICD": {"api_version": "1.3.0", "library_path": "$target/libvulkan_lvp.so"}}
JSON
