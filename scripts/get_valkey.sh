#!/usr/bin/env bash
# Puts Valkey's server, which Debian 12 itself does not have, into build/valkey. It comes from bookworm-backports by
# apt's settings of its own, so that the machine's stay as they are and no service is installed.
set -euo pipefail
target=$(cd "$(dirname "$0")/.." && pwd)/build/valkey
[ -x "$target/valkey-server" ] && exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$work"/lists/partial "$work"/cache/archives/partial "$target"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm-backports main" \
  >"$work/sources.list"
backports=(-qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$work/lists"
  -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root)
apt-get "${backports[@]}" update
# valkey-server is a link to valkey-check-rdb of valkey-tools; its libraries are those of Debian 12's redis-server.
(cd "$work" && apt-get "${backports[@]}" download valkey-server valkey-tools &&
  for package in ./*.deb; do dpkg-deb -x "$package" files; done)
cp -L "$work"/files/usr/bin/valkey-server "$target"/
