#!/usr/bin/env bash
# run.sh SOURCE_FOLDER BUILD_FOLDER CXX: follows the recipes of CONTRIBUTING.md in a copy of the tree, in BUILD_FOLDER. An
# op is a new folder in src/ops and a declaration in the public header. A sealed codec is a new folder in src/codec and its
# name in at most three files. The build must find them, translate the op's kernel, and the self-test must run both on
# every device.
set -euo pipefail
source=$1 work=$2/recipe cxx=$3
trap 'rm -rf "$work"' EXIT
rm -rf "$work"
mkdir "$work"

(cd "$source" && git ls-files -co --exclude-standard -z | xargs -0 cp --parents -t "$work")
git -C "$work" init -q
git -C "$work" add -A

cp -r "$source/tests/recipe/negate" "$work/src/ops/"
header=$work/include/rota/ops.h
sed -i '/^}  \/\/ namespace rota::inline ROTA_ABI$/d' "$header"
cat "$source/tests/recipe/declaration.h" >>"$header"
printf '\n}  // namespace rota::inline ROTA_ABI\n' >>"$header"
git -C "$work" add -A

cp -r "$source/tests/recipe/even" "$work/src/codec/"
python3 "$source/tests/recipe/name_codec.py" "$work"
touched=$(git -C "$work" diff --name-only)
printf 'a sealed codec touches %d files outside its folder:\n%s\n' "$(wc -l <<<"$touched")" "$touched"
[ "$(wc -l <<<"$touched")" -le 3 ] || { echo "more than three"; exit 1; }

python3 "$work/scripts/check_layers.py"
cmake -S "$work" -B "$work/build/recipe" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" -DROTA_EXAMPLES=OFF -DROTA_TOOL=OFF -DROTA_STORE=OFF -DROTA_WERROR=ON \
  -DROTA_CCACHE=ON -DROTA_UNITY_BUILD=library -DCMAKE_BUILD_TYPE=Debug >/dev/null
cmake --build "$work/build/recipe" >"$work/log" || { cat "$work/log"; exit 1; }
[ -s "$work/build/recipe/kernels/negate.metal" ] || { echo "no MSL was made"; exit 1; }
"$cxx" -std=c++20 -I"$work/include" -I"$work/build/recipe/include" -I"$work/tests" "$work/tests/emulated/selftest.cpp" -o "$work/selftest" \
  -L"$work/build/recipe" -lrota -Wl,-rpath,"$work/build/recipe" -pthread
for device in cpu vulkan:0; do
  "$work/selftest" $device >"$work/said" || { cat "$work/said"; exit 1; }
  grep -E 'negate|even4' "$work/said"
  grep -q "^$device works: negate," "$work/said" || { echo "the new op did not run on $device"; exit 1; }
  for op in seal unseal attend; do
    grep -q "^$device works: $op, even4" "$work/said" || { echo "$op does not serve the new codec on $device"; exit 1; }
  done
done
