#!/usr/bin/env bash
# run.sh SOURCE_FOLDER BUILD_FOLDER ROTA_TOOL: the self-test on CPUs that have less than this one, and on another kind of
# CPU, emulated. The tool is the same program each time: it must choose kernels that the CPU can run. On the other kind
# tests of sealed pages run, too, and instructions are counted.
set -euo pipefail
source=$1 build=$2 tool=$3
here=$(cd "$(dirname "$0")" && pwd)

fail() {
  echo "$1"
  exit 1
}

x86_64() {
  echo "== $1"
  qemu-x86_64 -cpu "$1" "$tool" devices 2>/dev/null | grep -q "driver  *rota, $2 kernels" || fail "$1 does not run $2 kernels"
  qemu-x86_64 -cpu "$1" "$tool" doctor --device cpu --selftest 2>/dev/null || fail "the self-test fails on $1"
}
if [ "$(uname -m)" = x86_64 ]; then
  x86_64 Nehalem baseline
  x86_64 Haswell avx2
fi

# Of fmt only headers are used, whatever CPU its package is for.
fmt=$(dirname "$(find /usr/lib /usr/share -name fmt-config.cmake -print -quit)")
cmake -S "$source" -B "$build" -G Ninja -Dfmt_DIR="$fmt" -DCMAKE_BUILD_TYPE=Release -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
  -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc "-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64;-L;/usr/aarch64-linux-gnu" \
  -DCMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache || true)" -DROTA_WERROR=ON -DBUILD_SHARED_LIBS=OFF -DROTA_UNITY_BUILD=library \
  -DROTA_EXAMPLES=ON -DROTA_VULKAN=OFF -DROTA_MSL=OFF -DROTA_TOOL=OFF -DROTA_STORE=OFF -DROTA_TESTS=OFF >/dev/null
cmake --build "$build" >/dev/null || fail "the library does not build for AArch64"
python3 "$here/../stack/frames.py" "$build"
aarch64-linux-gnu-g++ -std=c++20 -O2 -Wall -Wextra -Werror -I"$source/include" -I"$build/include" -I"$here/.." "$here/selftest.cpp" "$build/librota.a" \
  -o "$build/selftest" -pthread
# Tests of sealed pages, and instructions counted by a plugin of the emulator's: what they are linked with is built for
# AArch64 here.
googletest=/usr/src/googletest/googletest
mkdir -p "$build/tests"
objects=()
compile() {
  objects+=("$build/tests/$(basename "$1").o")
  $(command -v ccache || true) aarch64-linux-gnu-g++ -std=c++20 -O1 -DFMT_HEADER_ONLY "-DROTA_SOURCE_FOLDER=\"$source\"" \
    -DROTA_HAS_VULKAN=0 -DROTA_HAS_METAL=0 -I"$source/src" -I"$source/include" -I"$source/tests" -I"$build/include" \
    -I"$build/tables" -I"$build/kernels" -I"$googletest" -c "$1" -o "${objects[-1]}" || fail "$1 does not compile for AArch64"
}
link() {
  aarch64-linux-gnu-g++ "${objects[@]}" "$build/librota.a" -o "$1" -pthread || fail "$1 does not link"
  objects=()
}
compile "$googletest/src/gtest-all.cc"
compile "$googletest/src/gtest_main.cc"
compile "$source/tests/harness/on_device.cpp"
compile "$source/tests/harness/elements.cpp"
compile "$source/src/ops/attend/attend_stored_device_test.cpp"
link "$build/tests/stored"
compile "$source/tests/cpu_cost/main.cpp"
compile "$source/tests/cpu_cost/steps.cpp"
link "$build/tests/cpu_cost"
g++ -std=c++20 -O2 -Wall -Wextra -Werror -shared -fPIC "$source/tests/cpu_cost/count_plugin.cpp" -o "$build/tests/count_plugin.so"

aarch64() {
  echo "== AArch64, $1"
  emulated=(qemu-aarch64 -cpu "$1" -L /usr/aarch64-linux-gnu)
  "${emulated[@]}" "$build/selftest" | tee "$build/said" || fail "the self-test fails on $1"
  grep -q "driver rota, $2 kernels" "$build/said" || fail "$1 does not run $2 kernels"
  "${emulated[@]}" "$build/examples/rota_example_kv_cache" cpu || fail "the example fails on $1"
  "${emulated[@]}" "$build/examples/rota_example_c_decode" cpu || fail "the example in C fails on $1"
  "${emulated[@]}" "$build/tests/stored" "--gtest_filter=AttendStored.$3" || fail "tests of sealed pages fail on $1"
}
# The last compares all sets bit by bit; how much bytes err on another CPU is what they err on this one.
aarch64 cortex-a53 baseline '*-*Tenth*'
aarch64 neoverse-n1 dotprod '*-*Tenth*:*ChangeNoBit'
aarch64 max i8mm '*-*Tenth*'

echo "== AArch64, instructions"
ROTA_STEPS=$build/tests/steps "${emulated[@]}" -plugin "$build/tests/count_plugin.so,into=$build/tests/steps" \
  "$build/tests/cpu_cost" ${ROTA_WRITE_COUNTS:+--write} || fail "ROTA_WRITE_COUNTS=1 accepts the new counts"
