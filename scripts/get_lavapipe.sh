#!/usr/bin/env bash
# Puts a newer lavapipe than Debian 12's own, which has no sparse buffers, into build/lavapipe. It comes from
# bookworm-backports by apt's settings of its own, so that the machine's stay as they are.
set -euo pipefail
target=$(cd "$(dirname "$0")/.." && pwd)/build/lavapipe
[ -f "$target/lvp_icd.json" ] && exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$work"/lists/partial "$work"/cache/archives/partial "$target"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm-backports main" \
  >"$work/sources.list"
backports=(-qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$work/lists"
  -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root)
apt-get "${backports[@]}" update
(cd "$work" && apt-get "${backports[@]}" download mesa-vulkan-drivers && dpkg-deb -x mesa-vulkan-drivers_*.deb files)
cp "$work"/files/usr/lib/*/libvulkan_lvp.so "$target"/
cat >"$target/lvp_icd.json" <<JSON
{"file_format_version": "1.0.0", "ICD": {"api_version": "1.3.0", "library_path": "$target/libvulkan_lvp.so"}}
JSON
