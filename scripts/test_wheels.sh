#!/usr/bin/env bash
# test_wheels.sh [WHEEL_FOLDER]: installs what scripts/build_wheels.sh built (build/wheels/out) into a clean environment
# of each Python, and runs the tests of python/tests there that need no more than numpy.
set -euo pipefail
wheels=$(cd -P "${1:-$(dirname "$0")/../build/wheels/out}" && pwd)
cd -P "$(dirname "$0")/.."
repository=$PWD
beside=(numpy==2.4.6 pytest==9.2.0)
export PYTHONDONTWRITEBYTECODE=1

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for version in 3.11 3.12 3.13; do
  echo "-- Python $version"
  python=$(scripts/find_python.sh "$version")
  venv=$work/python$version
  "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "${beside[@]}"
  # pip itself chooses the wheel that fits.
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --find-links "$wheels" rota-kv
  # Elsewhere than here, so that what is installed is what is imported.
  (cd "$work" && "$venv/bin/python" -m pytest -q -p no:cacheprovider "$repository"/python/tests/test_*.py)
done
