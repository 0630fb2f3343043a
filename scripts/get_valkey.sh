#!/usr/bin/env bash
# Puts Valkey's server, which Debian 12 itself does not have, into build/valkey. It comes from bookworm-backports.
set -euo pipefail
cd -P "$(dirname "$0")/.."
target=$PWD/build/valkey
[ -x "$target/valkey-server" ] && exit 0
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT
# valkey-server is a link to valkey-check-rdb of valkey-tools; its libraries are those of Debian 12's redis-server.
scripts/get_from_backports.sh "$files" valkey-server valkey-tools
mkdir -p "$target"
cp -L "$files"/usr/bin/valkey-server "$target"/
