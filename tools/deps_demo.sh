#!/usr/bin/env bash
# What `make demo` needs on a bare Debian 12, and no more: `make deps` installs the rest.
#
#   tools/deps_demo.sh packages CORPUS    Debian packages, and beside them the manuals, into CORPUS
#   tools/deps_demo.sh embedder PREFIX    the embedding model, into PREFIX
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
what=${1:?usage: deps_demo.sh packages CORPUS, or embedder PREFIX} prefix=${2:?the folder is missing}
# shellcheck source=tools/deps_parts.sh
. "$here/deps_parts.sh"

case $what in
    packages)
        mkdir -p "$(dirname "$prefix")"
        "$here/fetch_corpus.sh" "$prefix" > "$prefix.log" 2>&1 &
        install_packages "${build_packages[@]}"
        wait $! || { cat "$prefix.log" >&2; exit 1; }
        cat "$prefix.log" ;;
    embedder)
        mkdir -p "$prefix"
        stamp_minilm ;;
esac
