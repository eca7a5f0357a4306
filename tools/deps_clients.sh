#!/usr/bin/env bash
# Makes the Python environment of tests/clients in PREFIX/clients-venv; called by `make clients-test`, safe to call again.
#
#   tools/deps_clients.sh PREFIX
#
# It is apart from `make deps` because these clients bring many packages and only these tests need them.
set -euo pipefail

prefix=${1:?usage: deps_clients.sh PREFIX}
here=$(cd "$(dirname "$0")" && pwd)
venv=$prefix/clients-venv
stamp=$prefix/.clients-venv.done
content=$(cksum < "$here/requirements-clients.txt")

say() { printf '\033[1mdeps-clients:\033[0m %s\n' "$*"; }

if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$content" ]; then
    mkdir -p "$prefix"
    rm -rf "$venv" "$stamp"
    say "creating the Python environment of the clients' tests"
    /usr/bin/python3 -m venv "$venv"
    "$venv/bin/pip" install -q -r "$here/requirements-clients.txt"
    echo "$content" > "$stamp"
fi
say "complete in $venv"
