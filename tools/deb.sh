#!/usr/bin/env bash
# tools/deb.sh PREFIX FOLDER: makes the Debian package in FOLDER and shows what lintian says of it; `make deb` calls it.
#
# It puts two builds of FAISS into PREFIX/faiss-portable: one for every
# processor of the architecture, and one for x86-64-v3 (AVX2), which the dynamic linker prefers where the processor is
# one (ld.so(8), glibc-hwcaps). The programs' own kernels are picked by CPUID.
set -euo pipefail

prefix=$(realpath -m "${1:?usage: deb.sh PREFIX FOLDER}") folder=$(realpath -m "${2:?usage: deb.sh PREFIX FOLDER}")
here=$(cd "$(dirname "$0")" && pwd)
tree=$folder/tree
faiss=$prefix/faiss-portable

say() { printf '\033[1mdeb:\033[0m %s\n' "$*"; }

if [ ! -f "$prefix/.faiss-portable.done" ]; then
    say "building FAISS for every processor (about two minutes on two cores)"
    "$here/faiss.sh" "$faiss" "-g0" -DFAISS_ENABLE_GPU=OFF
    if [ "$(dpkg --print-architecture)" = amd64 ]; then
        say "building FAISS for processors with AVX2 (the same again)"
        "$here/faiss.sh" "$prefix/faiss-v3" "-march=x86-64-v3 -g0" -DFAISS_ENABLE_GPU=OFF
        mkdir -p "$faiss/lib/glibc-hwcaps"
        mv "$prefix/faiss-v3/lib" "$faiss/lib/glibc-hwcaps/x86-64-v3"
        rm -rf "$prefix/faiss-v3"
    fi
    touch "$prefix/.faiss-portable.done"
fi

# A copy of the sources, so that nothing is written beside them; its objects are kept for the next time.
mkdir -p "$tree"
find "$tree" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
tar -C "$here/.." --exclude=./build --exclude=./.git -c . | tar -C "$tree" -x
rm -f "$folder"/*.deb
say "building the package"
(cd "$tree" && FAISS_HOME=$faiss DEB_BUILD_OPTIONS="noautodbgsym parallel=$(nproc)" \
    dpkg-buildpackage -us -uc -b -nc > "$folder/build.log" 2>&1) || { tail -40 "$folder/build.log"; exit 1; }
deb=$(ls "$folder"/retro-server_*.deb)
LC_ALL=C.UTF-8 lintian --fail-on error,warning --allow-root --info "$deb" | tee "$folder/lintian.log"
say "$deb, $(($(stat -c %s "$deb") / 1000000)) MB"
