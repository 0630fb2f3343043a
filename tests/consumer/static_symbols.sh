#!/usr/bin/env bash
# static_symbols.sh ARCHIVE: a static librota must not define names that belong to others, Vulkan's least of all.
set -euo pipefail
symbols=$(nm -C --defined-only --extern-only "$1")
grep -q ' T rota::v[0-9]*::store(' <<<"$symbols" || { echo "this is no librota"; exit 1; }
if grep -E '^[0-9a-f]+ [A-Z] ' <<<"$symbols" | grep -vE ' [A-Z] ([a-z ]+ for )?rota(::|_)| [VWu] | [A-Z] (DW\.ref\.|\.L)'; then
  echo "the names above are not ours to define"
  exit 1
fi
echo "static symbols clean"
