#!/usr/bin/env bash
# tests/hosts/run.sh PYTHON: the tests of ranks on several machines, as root or in a namespace where this user is root; `make
# hosts-test` calls it. Where neither is allowed each test says "skipped" and why.
cd "$(dirname "$0")/../.." || exit 1
python=${1:?usage: tests/hosts/run.sh PYTHON}
alone=()
[ "$(id -u)" = 0 ] || ! unshare -Ur true 2> /dev/null || alone=(unshare -Ur)
exec "${alone[@]}" "$python" -m pytest -q -rs -p no:cacheprovider tests/hosts
