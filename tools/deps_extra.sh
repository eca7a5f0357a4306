#!/usr/bin/env bash
# tools/deps_extra.sh PACKAGE...: installs Debian packages that few targets need (nginx, lintian, buildah), beside those of
# `make deps`; safe to call again. Services among them are not started.
set -euo pipefail

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

missing=$(for p in "$@"; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || echo "$p"; done)
if [ -n "$missing" ]; then
    printf '\033[1mdeps:\033[0m installing %s\n' "$(echo $missing)"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends $missing
fi
