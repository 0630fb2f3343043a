#!/usr/bin/env bash
# run.sh BUILD_FOLDER EXAMPLE_SOURCE CXX: makes Debian packages of the build, installs them in a clean Debian, uses them
# there as a stranger would, and removes them. The clean Debian is downloaded once and kept in BUILD_FOLDER. Needs root.
set -euo pipefail
build=$1 example=$2 cxx=$3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }

suite=bookworm
base=$build/$suite.tar
if [ ! -e "$base" ]; then
  # shellcheck disable=SC2016
  mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' | sed -n "s/ $suite\$//p" | head -n1)
  # What the packages need and a minimal Debian lacks is there before: the chroot has no network of its own.
  debootstrap --variant=minbase --include=libfmt9,libsqlite3-0,libsodium23,libssl3 "$suite" "$work/base" ${mirror:+"$mirror"} >"$work/log" || { tail "$work/log"; exit 1; }
  rm -rf "$work"/base/var/cache/apt/archives/*.deb
  tar -C "$work/base" -cf "$base.part" .
  mv "$base.part" "$base"
  mv "$work/base" "$work/root"
else
  mkdir "$work/root"
  tar -C "$work/root" -xf "$base"
fi
root=$work/root

cpack --config "$build/CPackConfig.cmake" -G DEB -B "$work/made" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
mkdir "$root/packages"
cp "$work"/made/*.deb "$root/packages"
(cd "$work/made" && ls ./*.deb)
names=$(for package in "$work"/made/*.deb; do dpkg-deb -f "$package" Package; done | xargs)
[ "$names" = "librota-dev librota-store0 librota0 rota" ] || fail "these are not the packages: $names"
dpkg-deb -f "$work"/made/rota_*.deb Depends | grep -q libfmt9 || fail "rota does not say that it needs libfmt9"

inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }
# All but what apt and dpkg write down about themselves.
files() { (cd "$root" && find . -path ./proc -prune -o -path ./packages -prune -o -print | grep -vE '^\./(var/(log|cache|lib/(dpkg|apt))|tmp)(/|$)' | sort); }

files >"$work/before"
inside sh -c 'apt-get install -y --no-install-recommends /packages/*.deb' >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
for package in $names; do
  for name in copyright changelog.gz changelog.Debian.gz; do
    [ -s "$root/usr/share/doc/$package/$name" ] || fail "$package has no $name"
  done
done
share=$root/usr/share
commands=$(inside rota --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
[ -n "$commands" ] || fail "rota --help names no commands"
for command in $commands; do
  gzip -t "$share/man/man1/rota-$command.1.gz" || fail "no man page of rota $command"
done
for path in man/man1/rota.1.gz bash-completion/completions/rota zsh/vendor-completions/_rota fish/vendor_completions.d/rota.fish; do
  [ -s "$share/$path" ] || fail "/usr/share/$path is missing"
done
if readelf -d "$root/usr/bin/rota" | grep -E 'RPATH|RUNPATH'; then fail "the tool looks for its library where it was built"; fi
for binary in "$root/usr/bin/rota" "$root"/usr/lib/librota.so.* "$root"/usr/lib/librota-store.so.*; do
  if readelf -S "$binary" | grep -q '\.debug_info'; then fail "$binary is not stripped"; fi
done
inside rota --version
inside rota devices
inside rota doctor --device cpu --selftest
inside rota estimate -m llama-3.1-8b -c 8192
inside rota bench seal --seconds 0.2 -c 256 --rotate 8 --device cpu

# The compiler is the machine's own: to install one would take longer than all the rest.
cmake -S "$here/../consumer" -B "$work/consumer" -G Ninja -DCMAKE_PREFIX_PATH="$root/usr" -DCMAKE_CXX_COMPILER="$cxx" \
  -DCMAKE_SKIP_RPATH=ON -DEXAMPLE="$example" >/dev/null
grep -q "^rota_DIR:PATH=$root/usr/" "$work/consumer/CMakeCache.txt" || fail "another rota was found"
cmake --build "$work/consumer" >/dev/null
cp "$work/consumer/consumer" "$root/packages/by-cmake"
inside /packages/by-cmake | tee "$work/by-cmake"
grep -qx 'slot 1:  36.0  36.5  37.0  37.5' "$work/by-cmake" || fail "position 9 is not in slot 1"
# shellcheck disable=SC2046
"$cxx" -std=c++20 "$example" $(PKG_CONFIG_PATH=$root/usr/lib/pkgconfig pkg-config --cflags --libs rota) -o "$root/packages/by-pkg-config"
inside /packages/by-pkg-config | diff "$work/by-cmake" -

# shellcheck disable=SC2086
inside apt-get purge -y $names >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
files | diff "$work/before" - || fail "the files above were left, or taken along"
if compgen -G "$root/var/lib/dpkg/info/*rota*"; then fail "dpkg still knows us"; fi
echo "packages: installed, used and removed without a trace"
