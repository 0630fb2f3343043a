#!/usr/bin/env bash
# static_symbols.sh ARCHIVE: a static librota must not define names that belong to others, Vulkan's least of all.
set -euo pipefail
if nm -C --defined-only --extern-only "$1" 2>/dev/null | grep -E '^[0-9a-f]+ [A-Z] ' |
  grep -vE ' [A-Z] ([a-z ]+ for )?rota(::|_)| [VWu] | [A-Z] (DW\.ref\.|\.L)'; then
  echo "the names above are not ours to define"
  exit 1
fi
echo "static symbols clean"
