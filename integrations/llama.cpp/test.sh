#!/usr/bin/env bash
# test.sh: tests what `build.sh --tests` built, with SmolLM2 and Gemma 3 from PyPI: sequences, states, failures and every
# architecture that llama.cpp has; beside them its tools as their users run them, and a small quality table.
# ROTA_TEST_LONG=1 benchmarks at a depth of 8,192, too.
set -euo pipefail
here=$(cd -P "$(dirname "$0")" && pwd)
root=$(cd -P "$here/../.." && pwd)
build=${ROTA_LLAMA_BUILD:-$root/build/llama.cpp}
bin=$build/bin
"$here/get_models.sh" "$build/models"
smollm2=$build/models/SmolLM2-135M-Instruct.Q4_1.gguf
gemma=$build/models/gemma-3-270m-q4_k_m.gguf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work
cat "$root/docs/page-format.md" "$root/docs/kv-cache.md" "$root/docs/gpu.md" >"$work/text"

"$root/scripts/get_valkey.sh"
mkdir "$work/architectures"
"$bin/test-llama-archs" -s 1 -o "$work/architectures" >"$work/log" 2>&1 || { tail -n 20 "$work/log"; exit 1; }
"$bin/rota-llama-tests" "$smollm2" "$gemma" "$work/architectures" "$work/text" >"$work/log" 2>&1 &
sequences=$!
failed=0
python3 "$here/tests/test_tools.py" "$bin" "$smollm2" "$gemma" --tiny "$work/architectures" \
  --valkey "$root/build/valkey/valkey-server" || failed=1
python3 "$here/tests/test_quality.py" "$bin/rota-eval" "$smollm2" "$work/text" || failed=1
wait $sequences || failed=1
tail -n 60 "$work/log"
exit $failed
