# Sourced. wrap_zig ZIG CACHE FILE "ARGUMENTS": makes FILE a program that is zig with ARGUMENTS, by a name that CMake and
# ccache know, such as clang++. zig keeps in CACHE what it compiles of its own C++ library. With CCACHE_COMPILERCHECK=content
# ccache tells versions of zig apart by FILE's second line.

# By itself zig adds debug information, and checks of undefined behaviour where nothing is optimized. Said here and not
# by CMake, because zig compiles its C++ library once for each way to link.
zig_options="-s -fno-sanitize=undefined"

wrap_zig() {
  local zig=$1 cache=$2 file=$3 arguments=$4
  cat >"$file" <<SH
#!/bin/sh
# zig $("$zig" version)
export ZIG_GLOBAL_CACHE_DIR="$cache" ZIG_LOCAL_CACHE_DIR="$cache"
exec "$zig" $arguments "\$@"
SH
  chmod +x "$file"
}
