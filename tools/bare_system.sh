#!/usr/bin/env bash
# tools/bare_system.sh SUITE FOLDER: a bare Debian or Ubuntu in FOLDER by debootstrap, with this machine's settings of apt.
# Needs root. The mirror is that of this machine's own packages; Ubuntu's is UBUNTU_MIRROR, else a folder beside it.
set -euo pipefail
suite=${1:?usage: bare_system.sh SUITE FOLDER} folder=${2:?usage: bare_system.sh SUITE FOLDER}
# shellcheck disable=SC2016 # apt's own names
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -1)
mirror=${mirror%/} options=(--components=main)
case $suite in
    jammy | noble)
        mirror=${UBUNTU_MIRROR:-${mirror%/debian*}/ubuntu}
        # Without Ubuntu's key its packages are taken as they come: an archive of ours is tried there, and nothing else.
        key=/usr/share/keyrings/ubuntu-archive-keyring.gpg
        options=(--components=main,universe)
        if [ -e "$key" ]; then options+=("--keyring=$key"); else options+=(--no-check-gpg); fi ;;
esac
# A suite that this debootstrap does not know yet is made as the one before it.
script=/usr/share/debootstrap/scripts/$suite
[ -e "$script" ] || script=/usr/share/debootstrap/scripts/jammy
mkdir -p "$folder"
debootstrap --variant=minbase --include=ca-certificates "${options[@]}" "$suite" "$folder" "$mirror" "$script" \
    > "$folder.log" 2>&1 || { tail -5 "$folder.log" >&2; exit 1; }
rm "$folder.log"
cp -a /etc/apt/apt.conf.d/. "$folder/etc/apt/apt.conf.d/"
rm -f "$folder"/etc/apt/apt.conf.d/{20packagekit,50appstream}
cp -aL /etc/ssl/certs/. "$folder/etc/ssl/certs/"
[ ! -d /usr/lib/apt/methods ] || cp -an /usr/lib/apt/methods/. "$folder/usr/lib/apt/methods/" 2> /dev/null || true
cp -L /etc/resolv.conf /etc/hosts "$folder/etc/"
chroot "$folder" apt-get -qq update
