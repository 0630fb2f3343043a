#!/usr/bin/env bash
# make_zig_toolchain.sh FOLDER TARGET: makes FOLDER/toolchain.cmake, with which CMake compiles by PyPI's zig for TARGET,
# as zig's -target takes it. Needs what scripts/get_python_tools.sh brings. zig keeps what it compiles of its own C++
# library in FOLDER/cache.
set -euo pipefail
mkdir -p "$1"
folder=$(cd -P "$1" && pwd) target=$2
cd -P "$(dirname "$0")/.."
zig=$(echo "$PWD"/build/python/lib/python*/site-packages/ziglang/zig)
[ -x "$zig" ] || { echo "there is no zig in build/python; scripts/get_python_tools.sh brings it" >&2; exit 1; }

# Programs by the names that others know them by: ccache and CMake see clang. With CCACHE_COMPILERCHECK=content ccache
# tells versions apart by the second line.
mkdir -p "$folder"/{bin,cache,include,lib/cmake/fmt,share/cmake}
version=$("$zig" version)
wrap() {
  printf '#!/bin/sh\n# zig '"$version"'\nexport ZIG_GLOBAL_CACHE_DIR="%s" ZIG_LOCAL_CACHE_DIR="%s"\nexec "%s" %s "$@"\n' \
    "$folder/cache" "$folder/cache" "$zig" "$2" >"$folder/bin/$1"
  chmod +x "$folder/bin/$1"
}
# By itself zig adds debug information, and checks of undefined behaviour where nothing is optimized. Said here and not
# by CMake, because zig compiles its C++ library once for each way to link.
wrap clang++ "c++ -target $target -s -fno-sanitize=undefined"
wrap ar ar
wrap ranlib ranlib

# Headers of libraries alone: beside them in /usr/include lie those of this system's C library.
for headers in fmt CLI nlohmann vulkan vk_video; do
  ln -sfn "/usr/include/$headers" "$folder/include/$headers"
done
for header in zlib.h zconf.h sqlite3.h sodium.h sodium; do
  ln -sfn "/usr/include/$header" "$folder/include/$header"
done
# A part of OpenSSL's depends on the architecture.
mkdir -p "$folder/include/openssl"
ln -sfn /usr/include/openssl/*.h "/usr/include/$(g++ -print-multiarch)"/openssl/*.h "$folder/include/openssl"
for package in CLI11 nlohmann_json; do
  rm -rf "$folder/share/cmake/$package"
  cp -r "/usr/share/cmake/$package" "$folder/share/cmake"
done
cat >"$folder/lib/cmake/fmt/fmt-config.cmake" <<CMAKE
add_library(fmt::fmt INTERFACE IMPORTED)
target_include_directories(fmt::fmt SYSTEM INTERFACE $folder/include)
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY=1)
add_library(fmt::fmt-header-only ALIAS fmt::fmt)
CMAKE
# Compiled in: programs of this toolchain run where none of these may be.
archive() {
  g++ -print-file-name="lib$1.a"
}
cat >"$folder/toolchain.cmake" <<CMAKE
set(ZLIB_INCLUDE_DIR $folder/include CACHE PATH "")
set(ZLIB_LIBRARY $(archive z) CACHE FILEPATH "")
set(SQLite3_INCLUDE_DIR $folder/include CACHE PATH "")
set(SQLite3_LIBRARY $(archive sqlite3) CACHE FILEPATH "")
set(ROTA_SODIUM_INCLUDE $folder/include CACHE PATH "")
set(ROTA_SODIUM_LIBRARY $(archive sodium) CACHE FILEPATH "")
set(OPENSSL_INCLUDE_DIR $folder/include CACHE PATH "")
set(OPENSSL_SSL_LIBRARY $(archive ssl) CACHE FILEPATH "")
set(OPENSSL_CRYPTO_LIBRARY $(archive crypto) CACHE FILEPATH "")
set(CMAKE_CXX_COMPILER $folder/bin/clang++)
set(CMAKE_AR $folder/bin/ar CACHE FILEPATH "")
set(CMAKE_RANLIB $folder/bin/ranlib CACHE FILEPATH "")
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXE_LINKER_FLAGS_INIT -pie)
list(PREPEND CMAKE_PREFIX_PATH $folder $PWD/build/hiredis)
CMAKE
