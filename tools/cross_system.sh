#!/usr/bin/env bash
# tools/cross_system.sh ARCH FOLDER: a Debian 12 in FOLDER that compiles for ARCH (arm64) with the libraries of
# debian/control and packages the result; `make deb ARCH=` calls it. Needs root, for chroot; what is complete is kept.
#
# Libraries of both architectures lie side by side there, so dpkg-shlibdeps finds which package each library is from, and
# qemu-user runs the programs that print their own manual. Packages come from where this machine's own do.
set -euo pipefail
cd "$(dirname "$0")/.."
usage="usage: cross_system.sh ARCH FOLDER"
arch=${1:?$usage} folder=$(realpath -m "${2:?$usage}")
[ "$(id -u)" = 0 ] || { echo "cross_system.sh: needs root, for chroot" >&2; exit 1; }

# Headers are of the other architecture, the rest of Build-Depends runs here.
packages=$(sed -n '/^Build-Depends:/,/^$/p' debian/control | tr -d ' \n' | sed 's/^Build-Depends://; s/([^)]*)//g' |
    tr , '\n' | sed "/-dev\$/s/\$/:$arch/; s/debhelper-compat/debhelper/")
packages+=" crossbuild-essential-$arch libgomp1:$arch libstdc++6:$arch libgcc-s1:$arch pkg-config qemu-user"
packages=$(echo $packages | tr ' ' ,)
[ "$(cat "$folder/complete" 2>/dev/null)" != "$packages" ] || exit 0

. /etc/os-release
# shellcheck disable=SC2016 # apt's own names
sources=$(apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' | sort -u)
[ -n "$sources" ] || { echo "cross_system.sh: apt has no list of Debian's packages: run apt-get update on Debian 12" >&2; exit 1; }

printf '\033[1mdeb:\033[0m %s\n' "making a Debian 12 that compiles for $arch"
rm -rf --one-file-system "$folder"
mkdir -p "$(dirname "$folder")"
mmdebstrap --quiet --mode=root --variant=buildd --architectures="$(dpkg --print-architecture),$arch" \
    --include="$packages" "$VERSION_CODENAME" "$folder" - <<< "$sources" > "$folder.log" 2>&1 ||
    { tail -40 "$folder.log" >&2; exit 1; }
rm "$folder.log"
echo "$packages" > "$folder/complete"
