#!/usr/bin/env bash
# alone.sh SOURCE_FOLDER BUILD_FOLDER CXX: every header that is included once per instruction set compiles alone, as an
# editor opens it; so does the public one of an engine's Metal, as C++ without Objective-C.
set -euo pipefail
source=$1 build=$2 cxx=$3
failed=0
while read -r header; do
  "$cxx" -std=c++20 -fsyntax-only -Werror -Wall -Wno-unused -x c++ -I"$source/src" -I"$source/include" -I"$build/include" \
    -I"$build/kernels" -I"$build/tables" - <<<"#include \"${header#*/}\"" || { echo "$header does not compile alone"; failed=1; }
done < <(cd "$source" && { find src -name '*simd.h' | sort; echo include/rota/metal.h; })
exit "$failed"
