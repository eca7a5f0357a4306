#!/usr/bin/env bash
# tools/install.sh BUILD FOLDER PROGRAM...: puts programs, the libraries that come with them, manual pages, completions,
# an example configuration and the documentation under FOLDER; `make install` calls it.
#
#   bin/                       the programs
#   lib/retro-server/          FAISS as `make deps` built it; the programs look for it here, relative to themselves
#   share/man/                 manual pages
#   share/bash-completion/, share/zsh/, share/fish/    completions
#   share/doc/retro-server/    README, LICENSE, docs/, examples/retro.json
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: install.sh BUILD FOLDER PROGRAM...} folder=${2:?usage: install.sh BUILD FOLDER PROGRAM...}
programs=("${@:3}")
folder=$(realpath -m "$folder")
doc=$folder/share/doc/retro-server

for program in "${programs[@]}"; do
    [ -x "$build/$program" ] || { echo "install: $build/$program is not there: run make first" >&2; exit 1; }
done
[ -d "$build/manual/share" ] || { echo "install: $build/manual is not there: run make first" >&2; exit 1; }

install -d "$folder/bin" "$folder/lib/retro-server" "$doc/examples"
install -m 755 "${programs[@]/#/$build/}" "$folder/bin"
for library in "$build"/lib/*.so; do
    [ -e "$library" ] && install -m 644 "$library" "$folder/lib/retro-server"
done
(cd "$build/manual" && find share -type f -exec install -D -m 644 {} "$folder/{}" \;)
install -m 644 README.md LICENSE "$doc"
install -m 644 tools/retro.json "$doc/examples"
find docs -type f -exec install -D -m 644 {} "$doc/{}" \;
echo "installed in $folder; an example configuration is $doc/examples/retro.json"
