#!/usr/bin/env bash
# run.sh SOURCE_FOLDER BUILD_FOLDER ZIG MAKE_TABLES TOOL: builds the library with its CPU backend and the examples, and
# where TOOL is ON the tool, for macOS 13 on Apple Silicon, and compiles the Metal backend against declarations of Apple's
# API. What a Mac's compiler, libc++ or linker would refuse is found without a Mac; nothing of it runs. MAKE_TABLES is a
# rota_make_tables that runs here.
set -euo pipefail
source=$1 build=$2 zig=$3 tables=$4 tool=$5

fail() {
  echo "$1"
  exit 1
}

# Programs of zig by the names that others have for them, and headers of libraries alone: beside those in /usr/include lie
# another system's.
export ROTA_MACOS_FOLDER=$build/macos
rm -rf "$ROTA_MACOS_FOLDER"
mkdir -p "$ROTA_MACOS_FOLDER"/{bin,include,lib/cmake/fmt,share/cmake}
export CCACHE_COMPILERCHECK=content
. "$source/scripts/wrap_zig.sh"
wrap() { wrap_zig "$zig" "$build/zig" "$ROTA_MACOS_FOLDER/bin/$1" "$2"; }
wrap clang++ "c++ -target aarch64-macos.13.0 $zig_options"
wrap clang "cc -target aarch64-macos.13.0 $zig_options"
wrap ar ar
wrap ranlib ranlib
cp -r /usr/include/{fmt,CLI,nlohmann} "$ROTA_MACOS_FOLDER/include"
cp -r /usr/share/cmake/{CLI11,nlohmann_json} "$ROTA_MACOS_FOLDER/share/cmake"
cat >"$ROTA_MACOS_FOLDER/lib/cmake/fmt/fmt-config.cmake" <<EOF
add_library(fmt::fmt INTERFACE IMPORTED)
target_include_directories(fmt::fmt SYSTEM INTERFACE $ROTA_MACOS_FOLDER/include)
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY=1)
add_library(fmt::fmt-header-only ALIAS fmt::fmt)
EOF

cmake -S "$source" -B "$build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$source/tests/macos/toolchain.cmake" -DCMAKE_BUILD_TYPE=Debug \
  -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DROTA_WERROR=ON -DROTA_CCACHE=ON "-DROTA_UNITY_BUILD=library;tool" -DROTA_MAKE_TABLES="$tables" -DROTA_VULKAN=OFF -DROTA_METAL=OFF -DROTA_MSL=OFF \
  -DROTA_TOOL="$tool" -DROTA_STORE=OFF -DROTA_EXAMPLES=ON >/dev/null
cmake --build "$build" -- -k 0 >"$build/log" || { grep -A12 -E 'FAILED|error'  "$build/log"; fail "the library, an example or the tool does not build for macOS"; }
programs=(examples/rota_example_kv_cache examples/rota_example_c_decode)
[ "$tool" = OFF ] || programs+=(tools/rota/rota)
for program in "${programs[@]}"; do
  file "$build/$program" | grep -q "Mach-O 64-bit arm64 executable" || fail "$program is no program of macOS"
done
file -L "$build/librota.dylib" | grep -q "Mach-O 64-bit arm64 dynamically linked shared library" || fail "there is no library of macOS"

for file in "$source"/src/backend/metal/*.mm; do
  "$ROTA_MACOS_FOLDER/bin/clang++" -std=c++20 -Wall -Wextra -Werror -Wno-missing-field-initializers -x objective-c++ -fblocks \
    -isystem "$source/tests/macos/include" -isystem "$source/tests/metal/include" -isystem "$ROTA_MACOS_FOLDER/include" \
    -I"$source/src" -I"$source/include" -I"$build/include" -I"$build/kernels" -c "$file" -o "$build/metal.o" ||
    fail "$file does not compile for macOS"
done
echo "librota.dylib and ${programs[*]##*/} link for macOS; $(ls "$source"/src/backend/metal/*.mm | wc -l) files of the Metal backend compile"
