#!/usr/bin/env bash
# tools/dist.sh PREFIX FOLDER: makes FOLDER/retro-server-VERSION-x86_64.tar.xz, which runs on any Linux for x86-64 with
# glibc 2.31 or later, unpacked anywhere; `make dist` calls it. Needs root, for the system below.
#
#   PREFIX/dist/system   a Debian 11: its glibc, its libraries and their headers, which the compiler of this machine builds
#                        with; FAISS and what has to be newer are compiled in it, from this distribution's source packages
#   PREFIX/dist/faiss    FAISS for every processor, and for x86-64-v3 (AVX2)
#
# What reads documents beside the program (Poppler, GMime, Tesseract, mandoc, catdoc) is the user's own, and is named where
# it is missing. So are glibc and the C++ library; every other library comes along.
set -euo pipefail

prefix=$(realpath -m "${1:?usage: dist.sh PREFIX FOLDER}") folder=$(realpath -m "${2:?usage: dist.sh PREFIX FOLDER}")
here=$(cd "$(dirname "$0")" && pwd)
base=$prefix/dist system=$prefix/dist/system
libraries=$system/usr/lib/x86_64-linux-gnu
# shellcheck source=tools/source_package.sh
. "$here/source_package.sh"

say() { printf '\033[1mdist:\033[0m %s\n' "$*"; }
fail() { echo "tools/dist.sh: $*" >&2; exit 1; }
inside() { chroot "$system" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }

# done_once NAME COMMAND...: runs COMMAND unless it completed before.
done_once() {
    [ ! -e "$base/.$1.done" ] || return 0
    "${@:2}"
    touch "$base/.$1.done"
}

make_system() {
    say "making a Debian 11 to build against"
    rm -rf "$system"
    "$here/bare_system.sh" bullseye "$system"
    inside apt-get install -y -qq --no-install-recommends g++ make cmake pkg-config libgnutls28-dev nettle-dev \
        libpcre2-dev libsentencepiece-dev libxml2-dev libjpeg62-turbo-dev libpng-dev libwebp-dev libxxhash-dev \
        libarchive-dev libyaml-dev libgmime-3.0-dev libseccomp-dev zlib1g-dev libcurl4-openssl-dev libpoppler-glib-dev \
        libsqlite3-dev libopenblas-openmp-dev > "$base/packages.log" 2>&1 || { tail "$base/packages.log"; return 1; }
    # The kernel's interface is the newer one, and so is that of Tesseract, which is opened where it is there.
    cp -a /usr/include/linux /usr/include/asm-generic /usr/include/tesseract /usr/include/leptonica "$system/usr/include"
    cp -a /usr/include/x86_64-linux-gnu/asm "$system/usr/include/x86_64-linux-gnu"
}

# build_library SOURCE PACKAGE COMMANDS: one of which the programs ask more than Debian 11 has.
build_library() {
    say "building $1"
    rm -rf "$system/source" && mkdir "$system/source"
    source_package "$1" "$2-dev" "$system/source"
    inside sh -ec "cd /source/$1-*/ && $3" > "$base/$1.log" 2>&1 || { tail "$base/$1.log"; return 1; }
    mkdir -p "$system/usr/share/doc/$1"
    cp "$system/source/$1"-*/debian/copyright "$system/usr/share/doc/$1"
    rm -rf "$system/source"
}
with_configure='./configure --prefix=/usr --libdir=/usr/lib/x86_64-linux-gnu --disable-static --disable-doc --disable-examples \
    --disable-curl --enable-https && make -j"$(nproc)" install'
with_cmake='cmake -S . -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBDIR=lib/x86_64-linux-gnu \
    -DBUILD_SHARED_LIBS=ON -DJANSSON_BUILD_SHARED_LIBS=ON -DJANSSON_EXAMPLES=OFF -DJANSSON_BUILD_DOCS=OFF \
    -DJANSSON_WITHOUT_TESTS=ON && make -C build -j"$(nproc)" install'

# build_faiss FOLDER FLAGS
build_faiss() {
    say "building FAISS${2:+ with $2} (some minutes)"
    rm -rf "$system/source" && mkdir "$system/source"
    source_package faiss libfaiss-dev "$system/source"
    # Several sources at once, since most of the time goes to their headers. Two of them have a function of one name.
    sed -i 's/\broundup\b/roundup_pq/g' "$system"/source/faiss-*/faiss/IndexPQFastScan.cpp
    # shellcheck disable=SC2016 # expanded inside
    inside sh -ec 'cd /source && cmake -S faiss-*/ -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG" \
            -DCMAKE_CXX_FLAGS="-g0 $1" -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=6 -DFAISS_ENABLE_GPU=OFF \
            -DFAISS_ENABLE_C_API=ON -DFAISS_ENABLE_PYTHON=OFF -DBUILD_SHARED_LIBS=ON -DBUILD_TESTING=OFF \
            -DFAISS_OPT_LEVEL=generic
        cmake --build build -j"$(nproc)" --target faiss faiss_c' sh "$2" > "$base/faiss.log" 2>&1 ||
        { tail -40 "$base/faiss.log"; return 1; }
    mkdir -p "$1" "$base/faiss/include/faiss/c_api"
    cp "$system"/source/build/faiss/libfaiss.so "$system"/source/build/c_api/libfaiss_c.so "$1"
    (cd "$system"/source/faiss-*/c_api && find . -name '*.h' -exec cp --parents {} "$base/faiss/include/faiss/c_api/" \;)
    cp "$system"/source/faiss-*/LICENSE "$base/faiss"
    rm -rf "$system/source"
}

# Links of the system lead to the system, from outside too.
make_links_relative() {
    local link
    while read -r link; do ln -sfnr "$system$(readlink "$link")" "$link"; done < <(
        find "$system/usr/lib" "$system/etc/alternatives" -lname '/*')
}

# This machine's compiler, for its kernels of new processors, with the system's libraries.
build_programs() {
    local cxx10=$system/usr/include/c++/10
    say "building the programs"
    PKG_CONFIG_SYSROOT_DIR=$system PKG_CONFIG_LIBDIR=$libraries/pkgconfig:$system/usr/share/pkgconfig \
        make -C "$here/.." --no-print-directory -j"$(nproc)" BUILD="$folder/build" SYSROOT="$system" DEBUG=-g0 \
        CC="gcc --sysroot=$system -L$system/usr/lib/gcc/x86_64-linux-gnu/10" \
        CXX="g++ --sysroot=$system -nostdinc++ -isystem $cxx10 -isystem $system/usr/include/x86_64-linux-gnu/c++/10" \
        CUDA= NCCL= MPI= CURL=1 FAISS=1 FAISS_GPU= FAISS_HOME="$base/faiss" DEPS=/nonexistent programs > "$folder/build.log" 2>&1 ||
        { grep -E 'error|undefined|\*\*\*' "$folder/build.log" | head -20; fail "the build failed: $folder/build.log"; }
}

needed() { objdump -p "$1" | awk '$1 == "NEEDED" { print $2 }'; }

# Of the user's own system: glibc's libraries, and those of the compiler, which other libraries share with ours.
is_of_system() {
    case $1 in
        ld-linux* | libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | libresolv.so.* | libstdc++.so.* | \
            libgcc_s.so.*) return 0 ;;
        *) return 1 ;;
    esac
}

# add_libraries FILE: what FILE needs, and what that needs, with its licence.
add_libraries() {
    local name from package
    for name in $(needed "$1"); do
        if is_of_system "$name" || [ -e "$tree/lib/$name" ]; then continue; fi
        from=$libraries/$name
        [ -e "$from" ] || fail "$1 needs $name, which is not in $libraries"
        cp -L "$from" "$tree/lib/$name"
        case $name in
            libmicrohttpd.* | libjansson.* | libutf8proc.*) package=${name#lib} package=${package%%.*} ;;
            *) package=$(inside dpkg -S "*/${name}*" 2> /dev/null | sed -n 's/:.*//p' | head -1) ;;
        esac
        [ "$package" != microhttpd ] || package=libmicrohttpd
        cp -L "$system/usr/share/doc/$package/copyright" "$tree/licences/$package" || fail "$name has no licence"
        add_libraries "$tree/lib/$name"
    done
}

make_tree() {
    local library
    rm -rf "$tree"
    mkdir -p "$tree/lib" "$tree/licences"
    cp "$folder"/build/retro-{server,index,eval,bench,convert} "$tree"
    cp -r "$base/faiss/lib/." "$tree/lib"
    cp "$base/faiss/LICENSE" "$tree/licences/faiss"
    cp "$here/../LICENSE" "$tree/licences/retro-server"
    cp "$here/../README.md" "$tree"
    cp "$here/retro.json" "$tree"
    for library in "$tree"/retro-* "$tree"/lib/libfaiss*.so; do add_libraries "$library"; done
    find "$tree/lib" -name '*.so*' -exec patchelf --set-rpath '$ORIGIN' {} \;
    find "$tree/lib/glibc-hwcaps" -name '*.so' -exec patchelf --set-rpath '$ORIGIN:$ORIGIN/../..' {} \;
    strip "$tree"/retro-*
    find "$tree/lib" -type f -exec strip --strip-unneeded {} \;
}

# What the archive's files ask of glibc.
newest_glibc() {
    find "$tree" -type f \( -name 'retro-*' -o -name '*.so*' \) -exec objdump -T {} \; 2> /dev/null |
        grep -oE 'GLIBC_2\.[0-9]+' | sort -uV | tail -1
}

[ "$(id -u)" = 0 ] || fail "needs root, for debootstrap and chroot"
[ "$(uname -m)" = x86_64 ] || fail "makes archives for x86-64 on x86-64"
mkdir -p "$base" "$folder"
done_once system make_system
done_once microhttpd build_library libmicrohttpd libmicrohttpd "$with_configure"
done_once jansson build_library jansson libjansson "$with_cmake && mv /usr/lib/libjansson.so* /usr/lib/x86_64-linux-gnu"
done_once utf8proc build_library utf8proc libutf8proc "$with_cmake"
done_once faiss build_faiss "$base/faiss/lib" ""
done_once faiss-v3 build_faiss "$base/faiss/lib/glibc-hwcaps/x86-64-v3" -march=x86-64-v3
make_links_relative
build_programs

version=$(sed -n 's/^#define RETRO_VERSION "\(.*\)"/\1/p' "$here/../config/base/base.h")
name=retro-server-$version-x86_64
tree=$folder/$name
make_tree
[ "$(newest_glibc | sort -V - <(echo GLIBC_2.31) | tail -1)" = GLIBC_2.31 ] || fail "something needs $(newest_glibc)"
tar -C "$folder" --sort=name --owner=0 --group=0 --numeric-owner -cJf "$folder/$name.tar.xz" "$name"
say "$folder/$name.tar.xz, $(($(stat -c %s "$folder/$name.tar.xz") / 1000000)) MB; it needs glibc $(newest_glibc | tr -d A-Z_) or later"
