#!/usr/bin/env bash
# run.sh SOURCE_FOLDER BUILD_FOLDER ROTA_TOOL: the self-test on CPUs that have less than this one, and on another kind of
# CPU, emulated. The tool is the same program each time: it must choose kernels that the CPU can run.
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
  -DCMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache || true)" -DROTA_WERROR=ON -DBUILD_SHARED_LIBS=OFF -DROTA_PRECOMPILED=library \
  -DROTA_EXAMPLES=ON -DROTA_VULKAN=OFF -DROTA_MSL=OFF -DROTA_TOOL=OFF -DROTA_STORE=OFF -DROTA_TESTS=OFF >/dev/null
cmake --build "$build" >/dev/null || fail "the library does not build for AArch64"
python3 "$here/../stack/frames.py" "$build"
aarch64-linux-gnu-g++ -std=c++20 -O2 -Wall -Wextra -Werror -I"$source/include" -I"$build/include" -I"$here/.." "$here/selftest.cpp" "$build/librota.a" \
  -o "$build/selftest" -pthread
aarch64() {
  echo "== AArch64, $1"
  qemu-aarch64 -cpu "$1" -L /usr/aarch64-linux-gnu "$build/selftest" | tee "$build/said" || fail "the self-test fails on $1"
  grep -q "driver rota, $2 kernels" "$build/said" || fail "$1 does not run $2 kernels"
  qemu-aarch64 -cpu "$1" -L /usr/aarch64-linux-gnu "$build/examples/rota_example_kv_cache" cpu || fail "the example fails on $1"
  qemu-aarch64 -cpu "$1" -L /usr/aarch64-linux-gnu "$build/examples/rota_example_c_decode" cpu || fail "the example in C fails on $1"
}
aarch64 cortex-a53 baseline
aarch64 max dotprod
