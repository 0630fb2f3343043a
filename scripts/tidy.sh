#!/usr/bin/env bash
# tidy.sh BUILD_FOLDER [REV [OPTION...]]: clang-tidy on the library, the tool, the examples and the build's own
# programs, by the compilation database of BUILD_FOLDER; with REV, only files that changed since, or that include a
# changed header. An empty REV is none; options are run-clang-tidy's own. scripts/get_python_tools.sh brings clang-tidy.
set -euo pipefail
cd -P "$(dirname "$0")/.."
build=$1 since=${2:-}
options=("${@:3}")
tidy=$PWD/build/python/bin/clang-tidy

count=$(python3 scripts/tidy_database.py "$build" "$build/tidy" "$since")
echo "$count files${since:+ since $since}"
[ -n "$since" ] || [ "$count" -ge 20 ] || { echo "clang-tidy would see too few files"; exit 1; }
log=$build/tidy/log
build/python/bin/run-clang-tidy.py -clang-tidy-binary "$tidy" -quiet -j"$(nproc)" -p "$build/tidy" "${options[@]}" >"$log" 2>&1 || { grep -E -A6 '(error|warning):' "$log"; exit 1; }
[ "$(grep -cF "$tidy " "$log")" -eq "$count" ] || { echo "clang-tidy saw too few files"; exit 1; }
