#!/usr/bin/env bash
# Builds hiredis with TLS, from Debian 13's source package, into build/hiredis: Debian 12's own has none.
set -euo pipefail
cd -P "$(dirname "$0")/.."
target=$PWD/build/hiredis
[ -e "$target/lib/libhiredis_ssl.a" ] && exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$work"/lists/partial "$work"/cache/archives/partial "$work"/source
echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main" \
  >"$work/sources.list"
trixie=(-qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$work/lists"
  -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root)
apt-get "${trixie[@]}" update
(cd "$work/source" && apt-get "${trixie[@]}" source --download-only hiredis >/dev/null && mkdir hiredis &&
  tar -xf hiredis_*.orig.tar.* -C hiredis --strip-components=1)
cmake -S "$work/source/hiredis" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DENABLE_SSL=ON -DBUILD_SHARED_LIBS=OFF \
  -DDISABLE_TESTS=ON -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_INSTALL_PREFIX="$target" -DCMAKE_INSTALL_LIBDIR=lib >/dev/null
cmake --build "$work/build" --target install >/dev/null
cp "$work/source/hiredis/COPYING" "$target"/
