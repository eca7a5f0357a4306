#!/usr/bin/env bash
# tools/bare_system.sh SUITE FOLDER: a bare Debian or Ubuntu in FOLDER by debootstrap, with this machine's settings of apt.
# Needs root. The mirror is that of this machine's own packages; Ubuntu's is UBUNTU_MIRROR, else a folder beside it.
set -euo pipefail
suite=${1:?usage: bare_system.sh SUITE FOLDER} folder=${2:?usage: bare_system.sh SUITE FOLDER}
# shellcheck disable=SC2016 # apt's own names
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -1)
mirror=${mirror%/} components=main options=()
case $suite in
    jammy | noble)
        mirror=${UBUNTU_MIRROR:-${mirror%/debian*}/ubuntu} components=main,universe
        # Without Ubuntu's key its packages are taken as they come: an archive of ours is tried there, and nothing else.
        key=/usr/share/keyrings/ubuntu-archive-keyring.gpg
        if [ -e "$key" ]; then options=("--keyring=$key"); else options=(--no-check-gpg); fi ;;
esac
# A suite that this debootstrap does not know yet is made as the one before it.
script=/usr/share/debootstrap/scripts/$suite
[ -e "$script" ] || script=/usr/share/debootstrap/scripts/jammy
mkdir -p "$folder"
debootstrap --variant=minbase --include=ca-certificates --components="$components" "${options[@]}" "$suite" "$folder" "$mirror" \
    "$script" > "$folder.log" 2>&1 || { tail -5 "$folder.log" >&2; exit 1; }
rm "$folder.log"

sources=$folder/etc/apt/sources.list
echo "deb $mirror $suite ${components//,/ }" > "$sources"
# Debian 11 gets nothing but what its security team mended.
[ "$suite" != bullseye ] || echo "deb $mirror-security bullseye-security main" >> "$sources"
cp -a /etc/apt/apt.conf.d/. "$folder/etc/apt/apt.conf.d/"
rm -f "$folder"/etc/apt/apt.conf.d/{20packagekit,50appstream}
# Proxies and their authorities, and transports that apt was given here.
cp -aL --remove-destination /etc/ssl/certs/. "$folder/etc/ssl/certs/"
[ ! -d /usr/lib/apt/methods ] || cp -an /usr/lib/apt/methods/. "$folder/usr/lib/apt/methods/" 2> /dev/null || true
cp -L /etc/resolv.conf /etc/hosts "$folder/etc/"
# Services are not started.
printf '#!/bin/sh\nexit 101\n' > "$folder/usr/sbin/policy-rc.d"
chmod +x "$folder/usr/sbin/policy-rc.d"
chroot "$folder" apt-get -qq update
