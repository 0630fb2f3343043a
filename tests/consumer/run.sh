#!/usr/bin/env bash
# run.sh BUILD_FOLDER EXAMPLE_SOURCE CXX C_EXAMPLE_SOURCE CC: installs the build, then uses it as a stranger would, by CMake
# and by pkg-config, in C++ and in C, and looks at what the library shows to the world.
set -euo pipefail
build=$1 example=$2 cxx=$3 c_example=$4 cc=$5
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/prefix"  # an installed tree may move
library=$(find "$work/prefix" -name librota.so)
folder=$(dirname "$library")

# Examples are installed, and are those that are compiled here.
doc=$work/prefix/share/doc/rota
for path in README.md docs/tool.md docs/bench.schema.json docs/adr/README.md data/models.json; do
  [ -s "$doc/$path" ] || { echo "share/doc/rota/$path is not installed"; exit 1; }
done
example=$doc/examples/$(basename "$example") c_example=$doc/examples/$(basename "$c_example")

cmake -S "$here" -B "$work/cmake" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_COMPILER="$cxx" -DEXAMPLE="$example" >/dev/null
cmake --build "$work/cmake" >/dev/null
"$work/cmake/consumer" | tee "$work/by-cmake"
grep -qx 'slot 1:  36.0  36.5  37.0  37.5' "$work/by-cmake" || { echo "position 9 is not in slot 1"; exit 1; }

export PKG_CONFIG_PATH=$folder/pkgconfig
# shellcheck disable=SC2046
"$cxx" -std=c++20 -Wall -Wextra -Werror "$example" $(pkg-config --cflags --libs rota) -o "$work/by-pkg-config"
LD_LIBRARY_PATH=$folder "$work/by-pkg-config" | diff "$work/by-cmake" -
# shellcheck disable=SC2046
"$cc" -std=c11 -Wall -Wextra -Wpedantic -Wconversion -Werror "$c_example" $(pkg-config --cflags --libs rota) -lm -o "$work/in-c"
LD_LIBRARY_PATH=$folder "$work/in-c"
if readelf -d "$work/in-c" | grep -q 'NEEDED.*libstdc++'; then echo "a program in C needs the C++ runtime itself"; exit 1; fi
# The page store, where it was built.
if [ -e "$folder/librota-store.so" ]; then
  cat >"$work/store.c" <<'END'
#include <rota/c_store.h>
#include <string.h>
int main(void) {
  rota_page_store* store = NULL;
  if (rota_page_store_open("abacus", NULL, &store) != ROTA_INVALID_ARGUMENT) return 1;
  return strstr(rota_last_message(), "url") == NULL;
}
END
  # shellcheck disable=SC2046
  "$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror "$work/store.c" $(pkg-config --cflags --libs rota-store) -o "$work/store-in-c"
  LD_LIBRARY_PATH=$folder "$work/store-in-c" || { echo "librota-store does not answer C through librota"; exit 1; }
  if nm -DC --with-symbol-versions --defined-only "$folder/librota-store.so" |
    grep -vE " ([a-z ]+ for )?rota::v[0-9]+::| [VWu] .*(std|__gnu_cxx)::| T rota_[a-z_]+@@ROTA_[0-9.]+$| A ROTA_[0-9.]+$"; then
    echo "the symbols above are not librota-store's to show"
    exit 1
  fi
fi
"$work/prefix/bin/rota" doctor --device cpu --selftest
for path in man/man1/rota.1 man/man1/rota-bench.1 bash-completion/completions/rota zsh/site-functions/_rota fish/vendor_completions.d/rota.fish; do
  [ -s "$work/prefix/share/$path" ] || { echo "share/$path is not installed"; exit 1; }
done

readelf -d "$library" | grep -q 'SONAME.*\[librota\.so\.[0-9]*\]' || { echo "no versioned SONAME"; exit 1; }
symbols=$(nm -DC --with-symbol-versions --defined-only "$library")
abi=v$(readelf -d "$library" | sed -n 's/.*SONAME.*\[librota\.so\.\([0-9]*\)\]/\1/p')
grep -q " T rota::$abi::store(" <<<"$symbols" || { echo "store is not shown"; exit 1; }
# Templates of the standard library stay visible, weakly, whatever a library does. C has rota_ and a version, which is a
# symbol itself.
if grep -vE " ([a-z ]+ for )?rota::$abi::| [VWu] .*(std|__gnu_cxx)::| T rota_[a-z_]+@@ROTA_[0-9.]+$| A ROTA_[0-9.]+$" <<<"$symbols"; then
  echo "the symbols above are not ours to show, not in rota::$abi, or C's without a version"
  exit 1
fi
grep -q ' T rota_attend@@ROTA_0\.1$' <<<"$symbols" || { echo "rota_attend is not shown"; exit 1; }
echo "consumer: built by CMake and by pkg-config, in C++ and C, symbols clean"
