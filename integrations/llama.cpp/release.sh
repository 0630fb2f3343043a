# The llama.cpp that rota.patch is for: the one in a release of llama-cpp-python, which PyPI keeps for good. Sourced.
release=0.3.36                                                            # llama.cpp 0c1e57098
sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e  # of its sdist

# download VERSION FOLDER: brings an sdist, unless it is there, and prints its path.
download() {
  local sdist=$2/llama_cpp_python-$1.tar.gz
  if [ ! -f "$sdist" ]; then
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-python --dest "$2" \
      "llama-cpp-python==$1" >&2
  fi
  echo "$sdist"
}
