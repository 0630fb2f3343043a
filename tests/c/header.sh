#!/usr/bin/env bash
# header.sh SOURCE_FOLDER BUILD_FOLDER COMPILER...: rota/c.h and rota/c_store.h, each alone, as C11, C++17 and C++20,
# with everything that the compilers warn about. In C no struct has padding: a member that took its place later would be
# read from callers that never wrote there. Compilers for C++ have ++ in their names.
set -euo pipefail
source=$1 build=$2
shift 2
program=$(mktemp)
trap 'rm -f "$program"' EXIT
for header in c c_store; do
  {
    echo "#include <rota/$header.h>"
    sed -nE 's/^#define (ROTA_(\w+)_INIT)\b.*/\1 \2/p' "$source/include/rota/$header.h" |
      while read -r macro name; do echo "rota_${name,,} made_$name = $macro;"; done
    echo 'int main(void) { return 0; }'
  } >"$program"
  grep -qE 'rota_(kv_group made_KV_GROUP = ROTA_KV_GROUP|prefix_counters made_PREFIX_COUNTERS = ROTA_PREFIX_COUNTERS)_INIT;' "$program"
  for compiler in "$@"; do
    case $compiler in
      *++*) languages="c++:c++17 c++:c++20" ;;
      *) languages="c:c11" ;;
    esac
    for language in $languages; do
      padded=
      [ "$language" = c:c11 ] && [ "$(getconf LONG_BIT)" = 64 ] && padded=-Wpadded
      # shellcheck disable=SC2086
      "$compiler" -x "${language%:*}" -std="${language#*:}" -fsyntax-only -Wall -Wextra -Wpedantic -Wconversion -Werror $padded \
        -I"$source/include" -I"$build/include" - <"$program"
      echo "rota/$header.h, $compiler, ${language#*:}: compiles"
    done
  done
done
