#!/usr/bin/env bash
# test_wheels_old_glibc.sh [WHEEL_FOLDER]: tests the wheel of Python 3.11 as scripts/test_wheels.sh does, on Debian 11,
# whose glibc 2.31 is the oldest that Debian's mirrors still have. Debian 12's Python 3.11 is compiled there, which
# takes minutes, and kept in build/wheels. Needs root.
set -euo pipefail
wheels=$(cd -P "${1:-$(dirname "$0")/../build/wheels/out}" && pwd)
cd -P "$(dirname "$0")/.."
base=$PWD/build/wheels/bullseye.tar
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
root=$work/root
inside() { chroot "$root" /usr/bin/env -i PATH=/opt/python/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"; }
run_quietly() { "$@" >"$work/log" 2>&1 || { tail -n 40 "$work/log"; exit 1; }; }

if [ -e "$base" ]; then
  mkdir "$root"
  tar -C "$root" -xf "$base"
else
  # shellcheck disable=SC2016
  mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' | sed -n "s/ bookworm\$//p" | head -n1)
  mirror=${mirror:-http://deb.debian.org/debian}
  run_quietly debootstrap --variant=minbase --include=gcc,libc6-dev,make,zlib1g-dev bullseye "$root" "$mirror"
  # Sources by apt's settings of its own, so that the machine's stay as they are.
  mkdir -p "$work"/lists/partial "$work"/cache/archives/partial
  echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm main" >"$work/sources.list"
  settings=(-qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=-
    -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root)
  run_quietly apt-get "${settings[@]}" update
  (cd "$work" && run_quietly apt-get "${settings[@]}" source --download-only python3.11)
  mkdir "$root/src"
  tar -C "$root/src" --strip-components=1 -xf "$work"/python3.11_*.orig.tar.gz
  run_quietly inside sh -c "cd /src && ./configure --prefix=/opt/python --disable-test-modules CFLAGS=-O1"
  run_quietly inside make -C /src -j"$(nproc)" install
  rm -rf "$root/src" "$root"/var/cache/apt/archives/*.deb
  tar -C "$root" -cf "$base.part" .
  mv "$base.part" "$base"
fi

mkdir "$root/wheels" "$root/tests"
cp "$wheels"/rota_kv-*-cp311-*.whl "$root/wheels"
cp python/tests/test_*.py "$root/tests"
# The clean system has no network of its own.
mapfile -t beside < <(sed -n 's/^beside=(\(.*\))$/\1/p' scripts/test_wheels.sh | tr ' ' '\n')
[ -n "${beside[*]}" ] || { echo "scripts/test_wheels.sh does not say what tests need"; exit 1; }
build/python/bin/python -m pip download --quiet --disable-pip-version-check --only-binary :all: --python-version 3.11 \
  --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 -d "$root/wheels" "${beside[@]}"
mount -t proc none "$root/proc"
trap 'umount "$root/proc"; rm -rf "$work"' EXIT
inside python3.11 -m venv /opt/clean
inside /opt/clean/bin/python -m pip install --quiet --disable-pip-version-check --no-index --find-links /wheels \
  rota-kv numpy pytest
inside /opt/clean/bin/python -c 'import platform; print("glibc", platform.libc_ver()[1])'
inside sh -c 'cd /tmp && /opt/clean/bin/python -m pytest -q -p no:cacheprovider /tests/test_*.py'
