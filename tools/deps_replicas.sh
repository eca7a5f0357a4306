#!/usr/bin/env bash
# Installs Debian's nginx and HAProxy; called by `make replicas-test`, safe to call again. Only these tests need them.
set -euo pipefail

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

packages=(nginx-light haproxy)
missing=$(for p in "${packages[@]}"; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || echo "$p"; done)
if [ -n "$missing" ]; then
    printf '\033[1mdeps-replicas:\033[0m installing %s\n' "$(echo $missing)"
    as_root apt-get update -qq
    # Their services are not started: the tests run them on ports of their own.
    DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 as_root apt-get install -y -qq --no-install-recommends $missing
fi
