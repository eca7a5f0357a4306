#!/usr/bin/env bash
# tools/deb.sh PREFIX FOLDER [ARCH]: makes the Debian package in FOLDER and shows what lintian says of it; `make deb`
# calls it. For another architecture than this machine's it builds in a system of its own (cross_system.sh), as root.
#
# It puts FAISS into PREFIX: a build for every processor of the architecture, and for amd64 one for x86-64-v3 (AVX2),
# which the dynamic linker prefers where the processor is one (ld.so(8), glibc-hwcaps). The programs pick their own
# kernels as they start.
set -euo pipefail

usage="usage: deb.sh PREFIX FOLDER [ARCH]"
prefix=$(realpath -m "${1:?$usage}") folder=$(realpath -m "${2:?$usage}")
here=$(cd "$(dirname "$0")" && pwd)
native=$(dpkg --print-architecture) arch=${3:-$(dpkg --print-architecture)}
tree=$folder/tree system=$prefix/cross-$arch
faiss=$prefix/faiss-portable
[ "$arch" = "$native" ] || faiss=$prefix/faiss-$arch

say() { printf '\033[1mdeb:\033[0m %s\n' "$*"; }

packaged=$(sed -n 's/^Architecture: //p' "$here/../debian/control")
case " $packaged " in
    *" $arch "*) ;;
    *) echo "deb: retro-server is for 64-bit little-endian machines, and packaged for $packaged, not for $arch" >&2; exit 1 ;;
esac

# How FAISS is built beside the compiler's flags: elsewhere with the compiler and the libraries of the system below.
faiss_flags=-g0 faiss_options=(-DFAISS_ENABLE_GPU=OFF)
if [ "$arch" != "$native" ]; then
    "$here/cross_system.sh" "$arch" "$system"
    triplet=$(dpkg-architecture -a"$arch" -qDEB_HOST_MULTIARCH 2> /dev/null)
    openblas=$system/usr/lib/$triplet/openblas-openmp/libopenblas.so
    faiss_flags+=" --sysroot=$system"
    faiss_options+=(-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR="${triplet%%-*}"
        -DCMAKE_C_COMPILER="$triplet-gcc" -DCMAKE_CXX_COMPILER="$triplet-g++" -DCMAKE_C_FLAGS="--sysroot=$system"
        -DBLAS_LIBRARIES="$openblas" -DLAPACK_LIBRARIES="$openblas" -DCMAKE_INSTALL_RPATH_USE_LINK_PATH=OFF)
fi
if [ ! -f "$prefix/.${faiss##*/}.done" ]; then
    say "building FAISS for every processor (about two minutes on two cores)"
    "$here/faiss.sh" "$faiss" "$faiss_flags" "${faiss_options[@]}"
    if [ "$arch" = amd64 ]; then
        say "building FAISS for processors with AVX2 (the same again)"
        "$here/faiss.sh" "$prefix/faiss-v3" "-march=x86-64-v3 $faiss_flags" "${faiss_options[@]}"
        mkdir -p "$faiss/lib/glibc-hwcaps"
        mv "$prefix/faiss-v3/lib" "$faiss/lib/glibc-hwcaps/x86-64-v3"
        rm -rf "$prefix/faiss-v3"
    fi
    touch "$prefix/.${faiss##*/}.done"
fi

# A copy of the sources, so that nothing is written beside them; its objects are kept for the next time.
mkdir -p "$tree"
find "$tree" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
tar -C "$here/.." --exclude=./build --exclude=./.git -c . | tar -C "$tree" -x
rm -f "$folder"/*.deb

export DEB_BUILD_OPTIONS="noautodbgsym parallel=$(nproc)"
build_here() { (cd "$tree" && FAISS_HOME=$faiss dpkg-buildpackage -us -uc -b -nc); }
# The folder and FAISS are seen inside below /retro, by this process and its children alone. dpkg-buildpackage would look
# for packages that run here, as debhelper, among the other architecture's (-d): cross_system.sh installed them.
build_there() {
    mkdir -p "$system/retro/package" "$system/retro/faiss"
    # shellcheck disable=SC2016 # for the shell inside
    unshare --mount bash -euc '
        mount --bind "$2" "$1/retro/package"
        mount --bind "$3" "$1/retro/faiss"
        mount -t proc proc "$1/proc"
        exec chroot "$1" env -i HOME=/ PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 FAISS_HOME=/retro/faiss \
            DEB_BUILD_OPTIONS="$DEB_BUILD_OPTIONS" sh -c "cd /retro/package/tree && dpkg-buildpackage -a$4 -d -us -uc -b -nc"' \
        build "$system" "$folder" "$faiss" "$arch"
}
build=build_here
[ "$arch" = "$native" ] || build=build_there

say "building the package for $arch"
$build > "$folder/build.log" 2>&1 || { tail -40 "$folder/build.log"; exit 1; }
deb=$(ls "$folder"/retro-server_*.deb)
LC_ALL=C.UTF-8 lintian --fail-on error,warning --allow-root --info "$deb" | tee "$folder/lintian.log"
say "$deb, $(($(stat -c %s "$deb") / 1000000)) MB"
