#!/usr/bin/env bash
# Puts Google's software Vulkan driver, which Debian ships inside Chromium, into build/swiftshader.
set -euo pipefail
target=$(cd "$(dirname "$0")/.." && pwd)/build/swiftshader
[ -f "$target/libvk_swiftshader.so" ] && exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$work" && apt-get download -qq chromium-common && dpkg-deb -x chromium-common_*.deb files)
mkdir -p "$target"
cp "$work"/files/usr/lib/chromium/{libvk_swiftshader.so,vk_swiftshader_icd.json} "$target"/
