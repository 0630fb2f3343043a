#!/bin/sh
# Measures predictions, speed and memory of a model with llama.cpp's caches and with Rota's:
#   integrations/llama.cpp/eval.sh -m model.gguf -f text
# ROTA_LLAMA_BUILD is the folder in which llama.cpp was built, if it is not build/llama.cpp.
root=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
program=${ROTA_LLAMA_BUILD:-$root/build/llama.cpp}/bin/rota-eval
if [ ! -x "$program" ]; then
  echo "eval.sh: $program is missing; build it first, as integrations/llama.cpp/README.md says, or set ROTA_LLAMA_BUILD" >&2
  exit 1
fi
exec "$program" "$@"
