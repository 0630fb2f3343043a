#!/usr/bin/env bash
# run.sh SOURCE_FOLDER CXX: follows the recipe of CONTRIBUTING.md in a copy of the tree. An op is a new folder in src/ops and
# a declaration in the public header; the build must find it, translate it, and doctor must run it on every device.
set -euo pipefail
source=$1 cxx=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

(cd "$source" && git ls-files -co --exclude-standard -z | xargs -0 cp --parents -t "$work")
cp -r "$source/tests/recipe/negate" "$work/src/ops/"
header=$work/include/rota/ops.h
sed -i '/^}  \/\/ namespace rota::inline ROTA_ABI$/d' "$header"
cat "$source/tests/recipe/declaration.h" >>"$header"
printf '\n}  // namespace rota::inline ROTA_ABI\n' >>"$header"

python3 "$work/scripts/check_layers.py"
cmake -S "$work" -B "$work/build/recipe" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" -DROTA_EXAMPLES=OFF -DROTA_WERROR=ON \
  -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_BUILD_TYPE=Debug >/dev/null
CCACHE_BASEDIR=$work CCACHE_NOHASHDIR=1 cmake --build "$work/build/recipe" >/dev/null
[ -s "$work/build/recipe/kernels/negate.metal" ] || { echo "no MSL was made"; exit 1; }
"$work/build/recipe/tools/rota/rota" doctor --selftest | tee "$work/doctor"
for device in cpu vulkan:0; do
  grep -qE "works +$device negate" "$work/doctor" || { echo "the new op did not run on $device"; exit 1; }
done
