#!/usr/bin/env bash
# Tries the patch on other releases, and says which hunks move and which do not apply.
#   integrations/llama.cpp/try_patch.sh [VERSION...]     of llama-cpp-python; without it, the neighbours of the one that
#                                                        the patch is for: the next release, if there is one, and the
#                                                        ones before, two in all
set -euo pipefail
here=$(cd -P "$(dirname "$0")" && pwd)
. "$here/release.sh"
folder=${ROTA_LLAMA_BUILD:-$here/../../build/llama.cpp}/releases
mkdir -p "$folder"
if [ $# -eq 0 ]; then
  # Newest first.
  mapfile -t all < <(python3 -m pip index versions llama-cpp-python 2>/dev/null | sed -n 's/^Available versions: //p' |
    tr -d ' ' | tr ',' '\n')
  [ ${#all[@]} -gt 0 ] || { echo "try_patch.sh: PyPI does not say which releases there are" >&2; exit 1; }
  for i in "${!all[@]}"; do
    [ "${all[$i]}" = $release ] && at=$i
  done
  if [ "${at:?the release is not on PyPI any more}" -gt 0 ]; then
    set -- "${all[$((at - 1))]}" "${all[$((at + 1))]}"
  else
    set -- "${all[$((at + 1))]}" "${all[$((at + 2))]}"
  fi
fi
failed=0
for version in "$@"; do
  sdist=$(download "$version" "$folder")
  tree=$folder/$version
  rm -rf "$tree"
  mkdir "$tree"
  tar -xzf "$sdist" -C "$tree" --strip-components=3 "llama_cpp_python-$version/vendor/llama.cpp"
  echo "== llama-cpp-python $version"
  patch --directory="$tree" --strip=1 --fuzz=0 --dry-run <"$here/rota.patch" >"$tree.log" || failed=1
  # A file is named once, and then what its hunks did.
  sed -n 's/^checking file //p; s/^Hunk /  hunk /p' "$tree.log"
  echo "  $(grep -c '^@@' "$here/rota.patch") hunks, of which $(grep -c 'succeeded at' "$tree.log" || true) move and" \
    "$(grep -c 'FAILED at' "$tree.log" || true) do not apply"
  rm -rf "$tree"
done
exit $failed
