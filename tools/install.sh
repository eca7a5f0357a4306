#!/usr/bin/env bash
# tools/install.sh BUILD DESTDIR PREFIX PROGRAM...: puts programs, the libraries that come with them, manual pages,
# completions, the service's unit, an example configuration and the documentation under DESTDIR/PREFIX, where they will be
# found under PREFIX; `make install` calls it.
#
#   bin/                       the programs
#   lib/retro-server/          FAISS as `make deps` built it; the programs look for it here, relative to themselves
#   lib/systemd/system/, lib/sysusers.d/, lib/tmpfiles.d/    the service, its user, its folders
#   share/man/                 manual pages
#   share/bash-completion/, share/zsh/, share/fish/    completions
#   share/doc/retro-server/    README, LICENSE, docs/, examples/retro.json
set -euo pipefail
cd "$(dirname "$0")/.."
usage="usage: install.sh BUILD DESTDIR PREFIX PROGRAM..."
build=${1:?$usage} destination=${2?$usage} prefix=${3:?$usage}
programs=("${@:4}")
folder=$(realpath -m "$destination$prefix")
doc=$folder/share/doc/retro-server

for program in "${programs[@]}"; do
    [ -x "$build/$program" ] || { echo "install: $build/$program is not there: run make first" >&2; exit 1; }
done
[ -d "$build/manual/share" ] || { echo "install: $build/manual is not there: run make first" >&2; exit 1; }

install -d "$folder/bin" "$folder/lib/retro-server" "$doc/examples"
install -m 755 "${programs[@]/#/$build/}" "$folder/bin"
# Builds for newer processors lie in folders of their own below.
(cd "$build/lib" && find -L . -name '*.so' -exec install -D -m 644 {} "$folder/lib/retro-server/{}" \;)
(cd "$build/manual" && find share -type f -exec install -D -m 644 {} "$folder/{}" \;)
install -d "$folder/lib/systemd/system"
sed "s|^ExecStart=/usr/bin/|ExecStart=$prefix/bin/|" debian/retro-server.service \
    > "$folder/lib/systemd/system/retro-server.service"
chmod 644 "$folder/lib/systemd/system/retro-server.service"
install -D -m 644 debian/retro-server.sysusers "$folder/lib/sysusers.d/retro-server.conf"
install -D -m 644 debian/retro-server.tmpfiles "$folder/lib/tmpfiles.d/retro-server.conf"
install -m 644 README.md LICENSE "$doc"
install -m 644 tools/retro.json "$doc/examples"
find docs -type f -exec install -D -m 644 {} "$doc/{}" \;
echo "installed in $folder; an example configuration is $doc/examples/retro.json"
