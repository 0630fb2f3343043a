#!/usr/bin/env bash
# run.sh SOURCE_FOLDER CMAKE...: with each CMake, a project that takes Rota by FetchContent is configured, compiles against
# its headers, and installs what is its own and nothing else. Each CMake must also know the presets.
set -euo pipefail
source=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for cmake in "$@"; do
  "$cmake" --version | head -n1
  rm -rf "$work/build" "$work/prefix"
  "$cmake" -S "$here" -B "$work/build" -G Ninja -DROTA_FOLDER="$source" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  ninja -C "$work/build" CMakeFiles/engine.dir/engine.cpp.o >"$work/log" || { cat "$work/log"; exit 1; }
  "$cmake" --install "$work/build" --prefix "$work/prefix" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  installed=$(cd "$work/prefix" && find . -type f)
  [ "$installed" = ./share/engine/CMakeLists.txt ] || { printf 'installed besides its own:\n%s\n' "$installed"; exit 1; }
  (cd "$source" && "$cmake" --list-presets) | grep -q '"release"' || { echo "it does not know the presets"; exit 1; }
done
echo "fetched: configured by $# versions of CMake, and only its own installed"
