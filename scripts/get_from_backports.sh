#!/usr/bin/env bash
# get_from_backports.sh FOLDER PACKAGE...: unpacks packages of bookworm-backports into FOLDER, by apt's settings of its own,
# so that the machine's stay as they are and no service is installed.
set -euo pipefail
mkdir -p "$1"
folder=$(cd -P "$1" && pwd)
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$work"/lists/partial "$work"/cache/archives/partial
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm-backports main" \
  >"$work/sources.list"
backports=(-qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$work/lists"
  -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root)
apt-get "${backports[@]}" update
cd "$work"
apt-get "${backports[@]}" download "$@"
for package in ./*.deb; do dpkg-deb -x "$package" "$folder"; done
