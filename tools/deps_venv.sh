#!/usr/bin/env bash
# Makes a Python environment in PREFIX/NAME-venv of tools/requirements-NAME.txt; safe to call again.
#
#   tools/deps_venv.sh PREFIX NAME [PACKAGE]
#
# PACKAGE is a folder with a pyproject.toml that is installed from its place. Environments that are large and that few
# need are apart from the one of `make deps`: NAME is agents, clients, page or train (PyTorch: some minutes, some gigabytes).
set -euo pipefail

prefix=${1:?usage: deps_venv.sh PREFIX NAME [PACKAGE]}
name=${2:?usage: deps_venv.sh PREFIX NAME [PACKAGE]}
package=${3:-}
requirements=$(cd "$(dirname "$0")" && pwd)/requirements-$name.txt
venv=$prefix/$name-venv
stamp=$prefix/.$name-venv.done
content=$(cksum < "$requirements")
# Another tree's package is another environment.
[ -z "$package" ] || content="$content $(cksum < "$package/pyproject.toml") $(cd "$package" && pwd)"

say() { printf '\033[1mdeps-%s:\033[0m %s\n' "$name" "$*"; }

if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$content" ]; then
    mkdir -p "$prefix"
    rm -rf "$venv" "$stamp"
    say "creating the Python environment"
    /usr/bin/python3 -m venv "$venv"
    "$venv/bin/pip" install -q -r "$requirements"
    [ -z "$package" ] || "$venv/bin/pip" install -q --no-deps --no-build-isolation -e "$package"
    echo "$content" > "$stamp"
fi
say "complete in $venv"
