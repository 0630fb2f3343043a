#!/usr/bin/env bash
# Builds llama.cpp with Rota: its tools take --rota SPEC then.
#   integrations/llama.cpp/build.sh [--source FOLDER] [--rota PREFIX] [--tests] [CMAKE_ARGUMENT...]
#   --source FOLDER  a checkout of your own, which is patched where it is; without it, the release that the patch is for
#   --rota PREFIX    where Rota is installed; without it, this repository's is built
#   --tests          builds the tests, too, and optimizes nothing but ggml
#   CMAKE_ARGUMENT   for llama.cpp, such as -DGGML_NATIVE=ON
# Everything goes to build/llama.cpp: programs to build/llama.cpp/bin.
set -euo pipefail
here=$(cd -P "$(dirname "$0")" && pwd)
. "$here/release.sh"
root=$(cd -P "$here/../.." && pwd)
build=${ROTA_LLAMA_BUILD:-$root/build/llama.cpp}
source='' prefix='' tests=''
arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --source) source=$(cd -P "${2:?--source wants a folder}" && pwd); shift 2 ;;
    --rota) prefix=$(cd -P "${2:?--rota wants a folder}" && pwd); shift 2 ;;
    --tests) tests=1; shift ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -D*) arguments+=("$1"); shift ;;
    *) echo "build.sh: $1 is unknown; build.sh --help says what there is" >&2; exit 2 ;;
  esac
done
mkdir -p "$build"
if command -v ccache >/dev/null; then
  arguments+=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DGGML_CCACHE=OFF)
fi

if [ -z "$prefix" ]; then
  prefix=$build/rota
  store=OFF
  if pkg-config --exists sqlite3 libsodium; then
    store=ON
  else
    echo "build.sh: there is no SQLite, or no libsodium, and so no page store"
  fi
  cmake -S "$root" -B "$build/rota-build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DROTA_VULKAN=OFF -DROTA_MSL=OFF \
    -DROTA_TOOL=OFF -DROTA_STORE=$store -DROTA_EXAMPLES=OFF -DROTA_CCACHE=ON >/dev/null
  cmake --build "$build/rota-build"
  cmake --install "$build/rota-build" --prefix "$prefix" >/dev/null
fi
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name rota.pc | head -n 1)")
export PKG_CONFIG_PATH

if [ -z "$source" ]; then
  source=$build/source
  sdist=$(download $release "$build")
  echo "$sha256  $sdist" | sha256sum --check --quiet
  if [ ! -d "$source" ]; then
    rm -rf "$build/unpacked"
    mkdir "$build/unpacked"
    tar -xzf "$sdist" -C "$build/unpacked" --strip-components=3 "llama_cpp_python-$release/vendor/llama.cpp"
    mv "$build/unpacked" "$source"
  fi
fi
# Once: what is patched already is left alone.
if [ ! -e "$source/src/llama-kv-rota.cmake" ]; then
  patch --directory="$source" --strip=1 --fuzz=0 --dry-run --quiet <"$here/rota.patch" || {
    echo "build.sh: the patch is for the llama.cpp of llama-cpp-python $release; try_patch.sh says which hunks move" >&2
    exit 1
  }
  patch --directory="$source" --strip=1 --fuzz=0 --quiet <"$here/rota.patch"
fi
# Only what has changed, so that nothing is compiled anew.
for file in "$here"/src/*; do
  cmp --quiet "$file" "$source/src/${file##*/}" || cp "$file" "$source/src/"
done

# ggml's own detection takes AMX, whose instructions need a permission that it does not ask for.
if [ "$(uname -sm)" = "Linux x86_64" ] && [[ " ${arguments[*]} " != *" -DGGML_NATIVE="* ]]; then
  arguments+=(-DGGML_NATIVE=OFF)
  flags=" $(grep -m 1 '^flags' /proc/cpuinfo) "
  [[ $flags == *" avx512f "*  && $flags == *" avx512bw "* && $flags == *" avx512vl "* ]] && arguments+=(-DGGML_AVX512=ON)
  [[ $flags == *" avx512_vnni "* ]] && arguments+=(-DGGML_AVX512_VNNI=ON)
  [[ $flags == *" avx512vbmi "* ]] && arguments+=(-DGGML_AVX512_VBMI=ON)
  [[ $flags == *" avx512_bf16 "* ]] && arguments+=(-DGGML_AVX512_BF16=ON)
fi
targets=(llama-cli llama-server llama-bench llama-perplexity llama-quantize)
if [ -n "$tests" ]; then
  targets+=(test-llama-archs)
  # Half of the time is spent on what tests run once. ggml's project includes the file, where it is a folder of its own.
  echo 'set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")' >"$build/ggml_flags.cmake"
  arguments+=(-DCMAKE_CXX_FLAGS_RELEASE="-O1 -DNDEBUG" -DCMAKE_PROJECT_ggml_INCLUDE="$build/ggml_flags.cmake")
fi
cmake -S "$source" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF \
  -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TESTS="${tests:+ON}" "${arguments[@]}" >"$build/configure.log" 2>&1 ||
  { cat "$build/configure.log"; exit 1; }
cmake --build "$build" --target "${targets[@]}"

cmake -S "$here" -B "$build/programs" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLLAMA_SOURCE="$source" -DLLAMA_BUILD="$build" \
  -DROTA_LLAMA_TESTS="${tests:+ON}" >"$build/configure.log" 2>&1 || { cat "$build/configure.log"; exit 1; }
cmake --build "$build/programs"
echo "built: $build/bin"
