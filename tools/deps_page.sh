#!/usr/bin/env bash
# Installs Debian's Chromium and makes the Python environment of tests/page in PREFIX/page-venv; called by
# `make page-test`, safe to call again.
#
#   tools/deps_page.sh PREFIX
#
# It is apart from `make deps` because a browser is large and only these tests need it.
set -euo pipefail

prefix=${1:?usage: deps_page.sh PREFIX}

say() { printf '\033[1mdeps-page:\033[0m %s\n' "$*"; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# playwright's driver needs libatomic.
packages=(chromium libatomic1)
missing=$(for p in "${packages[@]}"; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || echo "$p"; done)
if [ -n "$missing" ]; then
    say "installing" $missing "(180 MB of packages on a bare Debian 12)"
    as_root apt-get update -qq
    DEBIAN_FRONTEND=noninteractive as_root apt-get install -y -qq --no-install-recommends $missing
fi
"$(dirname "$0")/deps_venv.sh" "$prefix" page
