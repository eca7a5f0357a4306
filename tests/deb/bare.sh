#!/usr/bin/env bash
# tests/deb/bare.sh FOLDER [ARCH]: makes a bare Debian 12 in FOLDER, unless it is there; needs root. What comes from where
# is this machine's own setting for apt. Programs of another architecture, ARCH, are begun by the kernel in qemu-user.
set -euo pipefail

folder=$(realpath -m "${1:?usage: bare.sh FOLDER [ARCH]}") native=$(dpkg --print-architecture)
arch=${2:-$native}
[ "$(id -u)" = 0 ] || { echo "bare.sh: needs root, for chroot" >&2; exit 1; }
if [ "$arch" != "$native" ]; then
    # F: the emulator is opened here, so a program in a folder for chroot needs none there.
    emulator=/proc/sys/fs/binfmt_misc/qemu-$(dpkg-architecture -a"$arch" -qDEB_HOST_GNU_CPU 2> /dev/null)
    grep -q '^flags: .*F' "$emulator" 2> /dev/null || {
        echo "bare.sh: $emulator is not there or not for chroot: this kernel begins no programs for $arch. The packages" \
            "qemu-user-static and binfmt-support (\`update-binfmts --enable\`) make it do so" >&2
        exit 1
    }
fi
[ ! -f "$folder/.complete" ] || exit 0
command -v debootstrap > /dev/null || {
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap > /dev/null
}
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' | head -1)
rm -rf --one-file-system "$folder"
mkdir -p "$folder"
debootstrap --arch="$arch" --variant=minbase --include=ca-certificates bookworm "$folder" "$mirror" > "$folder.log" 2>&1 ||
    { tail -5 "$folder.log" >&2; exit 1; }
rm -rf "$folder.log" "$folder"/etc/apt/sources.list "$folder"/etc/apt/sources.list.d
for file in sources.list sources.list.d apt.conf.d; do
    [ ! -e "/etc/apt/$file" ] || cp -a "/etc/apt/$file" "$folder/etc/apt/"
done
rm -f "$folder"/etc/apt/apt.conf.d/{20packagekit,50appstream}
# Proxies and their authorities, and transports that apt was given here.
cp -aL /etc/ssl/certs/. "$folder/etc/ssl/certs/" 2> /dev/null || true
[ ! -d /usr/lib/apt/methods ] || cp -an /usr/lib/apt/methods/. "$folder/usr/lib/apt/methods/" 2> /dev/null || true
cp -L /etc/resolv.conf /etc/hosts "$folder/etc/" 2> /dev/null || true
# Services are not started, as in a container's image.
printf '#!/bin/sh\nexit 101\n' > "$folder/usr/sbin/policy-rc.d"
chmod +x "$folder/usr/sbin/policy-rc.d"
touch "$folder/.complete"
