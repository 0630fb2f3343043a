#!/usr/bin/env bash
# hardening.sh FILE...: libraries and programs are linked so that overruns find nothing to overwrite, and end there.
set -euo pipefail
for file in "$@"; do
  # Kept apart: grep -q leaves a pipe early, and readelf would complain.
  headers=$(readelf -lW "$file")
  dynamic=$(readelf -dW "$file")
  symbols=$(nm -D --undefined-only "$file")
  grep -q GNU_RELRO <<<"$headers" || { echo "$file: no GNU_RELRO"; exit 1; }
  grep -qE 'BIND_NOW|FLAGS_1.*NOW' <<<"$dynamic" || { echo "$file: symbols are bound late, and their table stays writable"; exit 1; }
  grep -qE 'GNU_STACK.*RW ' <<<"$headers" || { echo "$file: the stack is executable"; exit 1; }
  grep -q __stack_chk_fail <<<"$symbols" || { echo "$file: no stack protector"; exit 1; }
  grep -qE '__[a-z]+_chk(@|$)' <<<"$symbols" || { echo "$file: no fortified function"; exit 1; }
done
echo "hardened: $*"
