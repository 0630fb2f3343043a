#!/usr/bin/env bash
# find_python.sh VERSION [headers]: prints the path of a CPython VERSION, such as 3.12, that runs and can make virtual
# environments; with "headers", one that C++ can be compiled against. Looks on PATH, then at what pyenv has installed.
set -euo pipefail
version=$1 headers=${2:-}
check='
import os, sys, sysconfig, venv, ensurepip
assert sys.implementation.name == "cpython" and "%d.%d" % sys.version_info[:2] == sys.argv[1]
assert not sys.argv[2] or os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
print(sys.executable)'
shopt -s nullglob
for python in $(type -ap "python$version") "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python; do
  # One of pyenv's shims exists for versions that are not chosen, too, and fails.
  "$python" -c "$check" "$version" "$headers" 2>/dev/null && exit 0
done
with=${headers:+ with headers (Debian: python$version-dev)}
echo "there is no Python $version$with that makes virtual environments, neither on PATH nor of pyenv" >&2
exit 1
