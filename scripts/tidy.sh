#!/usr/bin/env bash
# tidy.sh BUILD_FOLDER [REV [OPTION...]]: clang-tidy on the library, the tool, the examples and the build's own
# programs, by the compilation database of BUILD_FOLDER; with REV, only files that changed since, or that include a
# changed header.
# An empty REV is none; options are run-clang-tidy's own.
set -euo pipefail
cd -P "$(dirname "$0")/.."
build=$1 since=${2:-}
options=("${@:3}")
folders="$PWD/(src|tools|examples|cmake)/(?!.*_(test|bench)\.cpp)"

files=("$folders")
least=20
if [ -n "$since" ]; then
  mapfile -t files < <(python3 scripts/changed_sources.py "$build" "$since" | grep -P "^$folders" || true)
  least=${#files[@]}
  echo "${#files[@]} files since $since"
  [ "$least" -gt 0 ] || exit 0
fi
log=$build/tidy.log
run-clang-tidy-19 -quiet -j"$(nproc)" -p "$build" "${options[@]}" "${files[@]}" >"$log" 2>&1 ||
  { grep -E -A6 '(error|warning):' "$log"; exit 1; }
[ "$(grep -c 'clang-tidy-19 ' "$log")" -ge "$least" ] || { echo "clang-tidy saw too few files"; exit 1; }
