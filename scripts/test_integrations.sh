#!/usr/bin/env bash
# test_integrations.sh [WHEEL_FOLDER]: installs what scripts/build_wheels.sh built (build/wheels/out) beside what
# scripts/get_integrations.sh brought, and runs the tests of rota.transformers and rota.lmcache there, those of generating
# once more with the oldest transformers.
set -euo pipefail
wheels=$(cd -P "${1:-$(dirname "$0")/../build/wheels/out}" && pwd)
cd -P "$(dirname "$0")/.."
repository=$PWD
venv=$PWD/build/integrations
export PYTHONDONTWRITEBYTECODE=1

[ -d "$venv/oldest" ] || scripts/get_integrations.sh
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-index --force-reinstall \
  --find-links "$wheels" rota-kv

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Elsewhere than here, so that what is installed is what is imported. Two at a time, with a thread each.
run() {
  local log=$1
  shift
  (cd "$work" && OMP_NUM_THREADS=1 "$venv/bin/python" -m pytest -q -p no:cacheprovider "$@" >"$work/$log" 2>&1)
}
run transformers "$repository/python/tests_transformers" &
transformers=$!
failed=0
run lmcache "$repository/python/tests_lmcache" || failed=1
PYTHONPATH=$venv/oldest run oldest "$repository/python/tests_transformers/test_generate.py" || failed=1
wait $transformers || failed=1
for log in transformers oldest lmcache; do
  echo "-- $log"
  tail -n 60 "$work/$log"
done
exit $failed
