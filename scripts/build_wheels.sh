#!/usr/bin/env bash
# build_wheels.sh [OUT_FOLDER]: builds the wheels of rota-kv for Linux on x86-64 with glibc 2.28 or later into
# OUT_FOLDER (build/wheels/out): one for Python 3.11, and one for 3.12 and all later ones. zig is the compiler, which
# brings every glibc's symbols, so that neither containers nor an old system are needed (docs/adr/0028). Fails where a
# wheel is not clean: a symbol of a later glibc, a library that others may lack, a function outside of Python's stable
# ABI, or an exported symbol besides the module's entry.
set -euo pipefail
out=${1:-}
[ -z "$out" ] || { mkdir -p "$out" && out=$(cd -P "$out" && pwd); }
cd -P "$(dirname "$0")/.."
work=$PWD/build/wheels
out=${out:-$work/out}
tools=$PWD/build/python/bin
glibc=2.28
platform=manylinux_${glibc/./_}_x86_64

fail() {
  echo "$1" >&2
  exit 1
}

# ccache, where there is one, knows the compiler by what its wrapper says.
export CCACHE_COMPILERCHECK=content
scripts/get_python_tools.sh
scripts/get_hiredis.sh
scripts/make_zig_toolchain.sh "$work/zig" "x86_64-linux-gnu.$glibc"

echo "-- licences of what is compiled in"
rm -rf "$work/licenses"
mkdir -p "$work/licenses"
for package in libfmt-dev libcli11-dev nlohmann-json3-dev zlib1g-dev libsqlite3-dev libsodium-dev libssl-dev; do
  cp "/usr/share/doc/$package/copyright" "$work/licenses/$package"
done
cp build/hiredis/COPYING "$work/licenses/hiredis"
cp build/python/lib/python*/site-packages/ziglang/lib/libcxx/LICENSE.TXT "$work/licenses/libcxx"

echo "-- the library and the tool, once for all Pythons"
cmake -S . -B "$work/library" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$work/zig/toolchain.cmake" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_INSTALL_PREFIX="$work/prefix" -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_SHARED_LIBS=OFF -DROTA_TOOL=ON \
  -DROTA_MSL=OFF -DROTA_EXAMPLES=OFF -DROTA_WERROR=ON -DROTA_CCACHE=ON "-DROTA_UNITY_BUILD=library;tool" >/dev/null
cmake --build "$work/library"
rm -rf "$work/prefix"
cmake --install "$work/library" --strip >/dev/null

rm -rf "$work/raw"
for version in 3.11 3.12; do
  echo "-- the module for Python $version"
  python=$(scripts/find_python.sh "$version" headers)
  venv=$work/python$version
  [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
  # What pip would bring into a folder of its own for each build, in the versions of pyproject.toml.
  requires='import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")'
  "$venv/bin/python" -c "$requires" |
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r /dev/stdin
  cp "$venv"/lib/python*/site-packages/nanobind-*.dist-info/licenses/LICENSE "$work/licenses/nanobind"
  "$venv/bin/python" -m pip wheel . --quiet --disable-pip-version-check --no-deps --no-build-isolation -w "$work/raw" \
    -C build-dir="$work/module$version" -C cmake.source-dir=python -C cmake.define.ROTA_WERROR=ON \
    -C cmake.define.CMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache || true)" \
    -C cmake.define.CMAKE_TOOLCHAIN_FILE="$work/zig/toolchain.cmake" -C cmake.define.CMAKE_PREFIX_PATH="$work/prefix" \
    -C cmake.define.ROTA_LICENSES="$work/licenses"
done

echo "-- what is in them"
mkdir -p "$out"
rm -f "$out"/rota_kv-*.whl
for wheel in "$work"/raw/*.whl; do
  PATH=$tools:$PATH "$tools/auditwheel" repair --plat "$platform" --only-plat -w "$out" "$wheel" 2>"$work/log" ||
    fail "$(tail -n 3 "$work/log")"
done
for wheel in "$out"/rota_kv-*.whl; do
  "$tools/auditwheel" show "$wheel" 2>/dev/null | xargs | grep -oE 'rota_kv-\S+ is consistent with [^.]*' ||
    fail "auditwheel knows no platform of $wheel"
done
for module in "$work"/module*/_rota.*.so; do
  # Other modules of a process have a C++ runtime each: none may see this one's.
  exported=$(nm -D --defined-only "$module" | awk '{print $3}')
  [ "$exported" = PyInit__rota ] || fail "$module exports more than its entry: $exported"
done
"$tools/abi3audit" --strict --summary "$out"/rota_kv-*-cp312-abi3-*.whl
ls -l "$out"/rota_kv-*.whl
