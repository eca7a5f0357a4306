#!/usr/bin/env bash
# Makes the Python environment of tools/retro_train in PREFIX/train-venv; called by `make deps-train`, safe to call again.
#
#   tools/deps_train.sh PREFIX
#
# It is apart from the environment of the tests because PyTorch is large and only training needs it.
set -euo pipefail

prefix=${1:?usage: deps_train.sh PREFIX}
here=$(cd "$(dirname "$0")" && pwd)
venv=$prefix/train-venv
stamp=$prefix/.train-venv.done
# The package is installed from its place in this tree: another tree is another environment.
content="$(cksum < "$here/requirements-train.txt") $(cksum < "$here/pyproject.toml") $here"

say() { printf '\033[1mdeps-train:\033[0m %s\n' "$*"; }

if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$content" ]; then
    mkdir -p "$prefix"
    rm -rf "$venv" "$stamp"
    say "creating the Python environment of training (PyTorch: some minutes, some gigabytes)"
    /usr/bin/python3 -m venv "$venv"
    "$venv/bin/pip" install -q -r "$here/requirements-train.txt"
    "$venv/bin/pip" install -q --no-deps --no-build-isolation -e "$here"
    echo "$content" > "$stamp"
fi
say "complete in $venv"
