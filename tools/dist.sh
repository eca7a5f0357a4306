#!/usr/bin/env bash
# tools/dist.sh PREFIX FOLDER: makes FOLDER/retro-server-VERSION-x86_64.tar.gz, which runs on any Linux for x86-64 with
# glibc 2.31 or later, unpacked anywhere; `make dist` calls it. Needs root, for the system below; what is complete is kept.
#
#   PREFIX/dist/system     a Debian 11: its glibc, its libraries and their headers, which the compiler of this machine
#                          builds with; libraries of which more is asked are compiled in it, from source packages
#   PREFIX/dist/faiss      FAISS, likewise, for every processor and for those with AVX2
#   PREFIX/dist/licences   the licences of what was compiled
#   FOLDER/objects         our own programs
#
# What reads documents beside the programs (Poppler, GMime, Tesseract, mandoc, catdoc) is the user's own, and is named where
# it is missing. So are glibc and the C++ library. Of the other libraries, most become part of the programs: a library that
# a reader brings must not meet an older copy of itself. The rest lies in lib/retro-server. GnuTLS, which Poppler may bring,
# lies there under another name, with names of its own for the versions of its symbols; what it is made of is part of it.
set -euo pipefail

prefix=$(realpath -m "${1:?usage: dist.sh PREFIX FOLDER}") folder=$(realpath -m "${2:?usage: dist.sh PREFIX FOLDER}")
here=$(cd "$(dirname "$0")" && pwd)
base=$prefix/dist system=$prefix/dist/system
triplet=x86_64-linux-gnu
libraries=$system/usr/lib/$triplet
# As ld.so(8) says of glibc-hwcaps/x86-64-v3; Debian 11's compiler has no name for it.
v3_flags='-mavx -mavx2 -mbmi -mbmi2 -mf16c -mfma -mlzcnt -mmovbe -mpopcnt'
# shellcheck source=tools/source_package.sh
. "$here/source_package.sh"

say() { printf '\033[1mdist:\033[0m %s\n' "$*"; }
fail() { echo "tools/dist.sh: $*" >&2; exit 1; }
inside() { chroot "$system" env -i HOME=/ PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }

# Of Debian 11, as they are: parts of the programs, their headers, and what lies beside the programs.
static_packages=(libpcre2-dev libjpeg62-turbo-dev libpng-dev libwebp-dev liblzma-dev libzstd-dev
    liblz4-dev libbz2-dev libyaml-dev libsqlite3-dev libseccomp-dev zlib1g-dev libxxhash-dev nettle-dev)
other_packages=(g++ make m4 automake cmake pkg-config libopenblas-openmp-dev)

# done_once NAME COMMAND...: runs COMMAND unless it completed before.
done_once() {
    [ ! -e "$base/.$1.done" ] || return 0
    "${@:2}"
    touch "$base/.$1.done"
}

make_system() {
    say "making a Debian 11 to build against"
    rm -rf --one-file-system "$system" "$base"/.*.done
    "$here/bare_system.sh" bullseye "$system"
    inside apt-get install -y -qq --no-install-recommends "${static_packages[@]}" "${other_packages[@]}" \
        > "$base/packages.log" 2>&1 || { tail "$base/packages.log"; return 1; }
    # The kernel's interface is the newer one. Tesseract is opened where it is there, by the interface of this machine's.
    cp -a /usr/include/linux /usr/include/asm-generic /usr/include/tesseract /usr/include/leptonica "$system/usr/include"
    cp -a "/usr/include/$triplet/asm" "$system/usr/include/$triplet"
    make_links_relative
    # Of these the linker is to find what becomes part of something.
    rm "$libraries"/lib{nettle,hogweed,gmp}.so
}

# Links of the system lead to the system, from outside too. Where they lead on from there is not looked up: it would be
# this machine's.
make_links_relative() {
    local link
    while read -r link; do
        ln -sfn "$(realpath -sm --relative-to "${link%/*}" "$system$(readlink "$link")")" "$link"
    done < <(find "$system/usr/lib" "$system/usr/lib64" "$system/etc/alternatives" -lname '/*')
}

# build_library SOURCE PACKAGE COMMANDS: one of which the programs ask more than Debian 11 has, or need less than all of.
build_library() {
    say "building $1"
    rm -rf "$system/source" && mkdir "$system/source"
    source_package "$1" "$2" "$system/source"
    inside sh -ec "cd /source/$1-*/ && $3" > "$base/$1.log" 2>&1 || { tail -40 "$base/$1.log"; return 1; }
    keep_licence "$1"
    rm -rf "$system/source"
}

# keep_licence SOURCE: of the sources that are unpacked, and which version they are.
keep_licence() {
    mkdir -p "$base/licences"
    cp "$system/source/$1"-*/debian/copyright "$base/licences/$1"
    awk '$1 == "Version:" { print $2; exit }' "$system"/source/"$1"_*.dsc > "$base/licences/$1.version"
}

installed="-DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBDIR=lib/$triplet"
# Some have folders of their own mind.
with_cmake() {
    echo "cmake -S . -B build $installed -DBUILD_SHARED_LIBS=OFF $* && make -C build -j$(nproc) install &&
        find /usr/lib -maxdepth 1 -name 'lib*.a' -exec mv {} /usr/lib/$triplet \;"
}
configure="./configure --prefix=/usr --libdir=/usr/lib/$triplet"
# For every processor, not this machine's; and to be part of a library. Debian's source has no folder of its manual.
gmp="mkdir doc && echo 'all install:' > doc/Makefile.in &&
    $configure --build=$triplet --disable-shared --with-pic CFLAGS=-O2 && make -j$(nproc) install"
# Debian's patches add sources, which automake is told of. libtool keeps the order of what it is given by -Wl.
gnutls="sed -i 's/GNUTLS_/RETRO_GNUTLS_/' lib/libgnutls.map &&
    sed -i 's/^libgnutls_la_LDFLAGS = /&-release retro /' lib/Makefile.am &&
    AUTOPOINT=true LIBTOOLIZE=true GTKDOCIZE=true autoreconf -f &&
    HOGWEED_LIBS=-Wl,-lhogweed,-lnettle,-lgmp LDFLAGS=-Wl,-z,defs \
    $configure --sysconfdir=/etc --disable-static --with-included-libtasn1 --with-included-unistring \
    --with-default-trust-store-file=/etc/ssl/certs/ca-certificates.crt \
    $(printf -- '--disable-%s ' doc tools tests cxx guile libdane nls) \
    $(printf -- '--without-%s ' p11-kit idn tpm tpm2 zlib brotli zstd) &&
    make -C gl -j$(nproc) && make -C lib -j$(nproc) install && rm /usr/lib/$triplet/libgnutls.la"
microhttpd="$configure --disable-static --disable-doc --disable-examples --disable-curl --enable-https && make -j$(nproc) install"
# HTTP and HTTPS, by the library that the server's own TLS has.
curl="$configure --disable-shared --with-gnutls --with-ca-bundle=/etc/ssl/certs/ca-certificates.crt --without-ca-path \
    $(printf -- '--disable-%s ' manual ldap ldaps rtsp dict telnet tftp pop3 imap smb smtp gopher mqtt ftp file ntlm) \
    $(printf -- '--without-%s ' libpsl librtmp libssh2 nghttp2 brotli zstd libidn2) &&
    make -C lib -j$(nproc) install && make -C include install && make install-pkgconfigDATA"

sentencepiece="cmake -S . -B build $installed -DSPM_ENABLE_TCMALLOC=OFF && make -C build -j$(nproc) sentencepiece &&
    cp -d build/src/libsentencepiece.so* /usr/lib/$triplet && cp src/sentencepiece_processor.h /usr/include"

build_libraries() {
    done_once gmp build_library gmp libgmp-dev "$gmp"
    done_once gnutls build_library gnutls28 libgnutls28-dev "$gnutls"
    done_once libmicrohttpd build_library libmicrohttpd libmicrohttpd-dev "$microhttpd"
    done_once jansson build_library jansson libjansson-dev "$(with_cmake -DJANSSON_EXAMPLES=OFF -DJANSSON_BUILD_DOCS=OFF \
        -DJANSSON_WITHOUT_TESTS=ON)"
    done_once utf8proc build_library utf8proc libutf8proc-dev "$(with_cmake)"
    done_once sentencepiece build_library sentencepiece libsentencepiece-dev "$sentencepiece"
    done_once curl build_library curl libcurl4-gnutls-dev "$curl"
    done_once libarchive build_library libarchive libarchive-dev "$(with_cmake \
        "$(printf -- '-DENABLE_%s=OFF ' TEST TAR CPIO CAT UNZIP OPENSSL LIBXML2 EXPAT ACL XATTR LIBB2)")"
    # Without ICU, which is 28 MB: texts come in as UTF-8.
    done_once libxml2 build_library libxml2 libxml2-dev "$(with_cmake \
        "$(printf -- '-DLIBXML2_WITH_%s=OFF ' ICU LZMA PYTHON PROGRAMS TESTS FTP HTTP)")"
}

# tell_names_apart FOLDER: several sources of FAISS are compiled at once, since most of the time goes to their headers, and
# some of them have functions of their own that share a name.
tell_names_apart() {
    local file
    for file in "$1"/*FastScan.cpp; do sed -i "s/\broundup\b/roundup_$(basename "$file" .cpp)/g" "$file"; done
    for file in IndexHNSW IndexNNDescent; do
        sed -i "s/\bstorage_distance_computer\b/distance_computer_$file/g" "$1/$file.cpp"
    done
}

# build_faiss FOLDER FLAGS
build_faiss() {
    local headers=$base/faiss/include/faiss/c_api
    say "building FAISS${2:+ for processors with AVX2} (some minutes)"
    rm -rf "$system/source"
    mkdir -p "$system/source" "$1" "$headers"
    source_package faiss libfaiss-dev "$system/source"
    tell_names_apart "$system"/source/faiss-*/faiss
    # shellcheck disable=SC2016 # expanded inside
    inside sh -ec 'cd /source && cmake -S faiss-*/ -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG" \
            -DCMAKE_CXX_FLAGS="-g0 $1" -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=6 -DFAISS_ENABLE_GPU=OFF \
            -DFAISS_ENABLE_C_API=ON -DFAISS_ENABLE_PYTHON=OFF -DBUILD_SHARED_LIBS=ON -DBUILD_TESTING=OFF \
            -DFAISS_OPT_LEVEL=generic
        cmake --build build -j"$(nproc)" --target faiss faiss_c' sh "$2" > "$base/faiss.log" 2>&1 ||
        { tail -40 "$base/faiss.log"; return 1; }
    cp "$system"/source/build/faiss/libfaiss.so "$system"/source/build/c_api/libfaiss_c.so "$1"
    (cd "$system"/source/faiss-*/c_api && find . -name '*.h' -exec cp --parents {} "$headers" \;)
    keep_licence faiss
    rm -rf "$system/source"
}

# The headers of libraries that are opened where they are there: this machine's.
opened_flags() { pkg-config --cflags "$@" | sed 's/-I/-isystem /g'; }

# This machine's compiler, for its kernels of new processors, with the system's libraries. libmicrohttpd stays a library:
# the server's functions come before its own. Without -B and -L the compiler begins programs and looks for libraries with
# this machine's.
build_programs() {
    local cxx=$system/usr/include/c++/10 static=(jansson pcre2-8 utf8proc curl xml2 jpeg png webpdemux webp archive yaml
        sqlite3 seccomp nettle lzma zstd lz4 bz2 z)
    say "building the programs"
    # The build runs them for their manual pages, and this machine has none of that name.
    mkdir -p "$folder/objects/lib"
    ln -sfn "$libraries/libgnutls-retro.so.30" "$folder/objects/lib"
    make -C "$here/.." --no-print-directory -j"$(nproc)" BUILD="$folder/objects" DEBUG=-g0 DEPS=. \
        CC="gcc --sysroot=$system -L$system/usr/lib/gcc/$triplet/10" \
        CXX="g++ --sysroot=$system -nostdinc++ -isystem $cxx -isystem $system/usr/include/$triplet/c++/10" \
        SYSROOT="$system" CUDA= NCCL= MPI= CURL=1 FAISS=1 FAISS_GPU= FAISS_HOME="$base/faiss" \
        GMIME_FLAGS="$(opened_flags gmime-3.0)" POPPLER_FLAGS="$(opened_flags poppler-glib cairo)" \
        LDLIBS="-B$libraries/ -L$libraries -Wl,--trace -Wl,-Bstatic -Wl,--start-group ${static[*]/#/-l} -Wl,--end-group -Wl,-Bdynamic -lmicrohttpd -lgnutls \
            -lsentencepiece -lstdc++ -lm -ldl -lpthread" \
        "$@" > "$folder/build.log" 2>&1 ||
        { grep -E 'error|undefined|\*\*\*' "$folder/build.log" | head -30; fail "the build failed: $folder/build.log"; }
    # What --trace names of libraries and of what begins a program. The compiler's own part is this machine's.
    ! grep -E "^/.*/\.\./$triplet/|^/(usr/)?lib/$triplet/" "$folder/build.log" || fail "these are this machine's"
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

# keep_package PACKAGE: its licence, and which version it is.
keep_package() {
    [ ! -e "$licences/$1" ] || return 0
    cp -L "$system/usr/share/doc/$1/copyright" "$licences/$1" || fail "$1 has no licence"
    echo "$1 $(inside dpkg-query -W -f '${Version} (source package ${source:Package} ${source:Version})' "$1")" >> "$versions"
}

# add_libraries FILE: what FILE needs, and what that needs.
add_libraries() {
    local name from package
    for name in $(needed "$1"); do
        if is_of_system "$name" || [ -e "$beside/$name" ]; then continue; fi
        from=$(realpath "$libraries/$name") || fail "$1 needs $name, which is not in $libraries"
        cp "$from" "$beside/$name"
        package=$({ inside dpkg -S "*/${from##*/}" 2> /dev/null || true; } | sed -n 's/:.*//p' | head -1)
        # What no package brought was compiled, and has its licence.
        [ -z "$package" ] || keep_package "$package"
        add_libraries "$beside/$name"
    done
}

add_licences() {
    local source package
    cp "$here/../LICENSE" "$licences/retro-server"
    for source in "$base"/licences/*.version; do
        source=${source##*/} source=${source%.version}
        cp "$base/licences/$source" "$licences"
        echo "$source (compiled here from source package $source $(cat "$base/licences/$source.version"))" >> "$versions"
    done
    for package in "${static_packages[@]}"; do keep_package "$package"; done
    for package in libjs-marked libjs-katex; do
        cp -L "/usr/share/doc/$package/copyright" "$licences/$package"
        dpkg-query -W -f '${Package} ${Version}\n' "$package" >> "$versions"
    done
    sort -uo "$versions" "$versions"
    cp -a "$system/usr/share/common-licenses" "$licences"
}

make_tree() {
    local file
    rm -rf "$tree"
    mkdir -p "$tree" "$licences"
    "$here/install.sh" "$folder/objects" "$tree" / retro-server retro-index retro-convert > "$folder/install.log"
    (cd "$tree/lib" && rm -r systemd sysusers.d tmpfiles.d)
    # What measures is left out, which is a tenth of the whole.
    find "$tree" \( -name '*retro-eval*' -o -name '*retro-bench*' \) -exec rm -r {} +
    # The name that glibc before 2.33 has for such processors.
    ln -s glibc-hwcaps/x86-64-v3 "$beside/haswell"
    mkdir -p "$tree/share/retro-server"
    cp -r "$here/../models" "$tree/share/retro-server/models"
    cp "$here/dist/README" "$here/dist/retro.json" "$tree"
    for file in "$tree"/bin/* "$beside"/libfaiss*.so; do add_libraries "$file"; done
    add_licences
    strip "$tree"/bin/*
    find "$beside" -type f -exec strip --strip-unneeded {} \; -exec patchelf --set-rpath '$ORIGIN' {} \;
    find "$beside/glibc-hwcaps" -type f -exec patchelf --set-rpath '$ORIGIN:$ORIGIN/../..' {} \;
}

# What the archive's programs and libraries ask of glibc and of the C++ library.
newest() {
    find "$tree/bin" "$beside" -type f -exec objdump -T {} \; | grep -oE "\b$1_[0-9.]+" | sort -uV | tail -1
}

# Libraries that readers do not bring; but for libgomp, which Tesseract brings, and asks for nothing newer than Debian 11's.
beside_names="libfaiss.so libfaiss_c.so libgfortran.so.5 libgnutls-retro.so.30 libgomp.so.1 libmicrohttpd.so.12 \
libopenblas.so.0 libquadmath.so.0 libsentencepiece.so.0"

# No newer than Debian 11 has, no other libraries than those, and no word of this machine's folders.
check_tree() {
    local limit path names
    names=$(cd "$beside" && printf '%s\n' lib*.so* | sort | xargs)
    [ "$names" = "$(xargs -n 1 <<< "$beside_names" | sort | xargs)" ] ||
        fail "beside the programs lie $names: a reader's libraries may ask for later ones of the same names"
    for limit in GLIBC_2.31 GLIBCXX_3.4.28 CXXABI_1.3.12; do
        [ "$(printf '%s\n' "$limit" "$(newest "${limit%_*}")" | sort -V | tail -1)" = "$limit" ] ||
            fail "something needs $(newest "${limit%_*}"), later than $limit"
    done
    for path in "$system" "$folder" "$HOME" "$(realpath "$here/..")"; do
        ! grep -rlaF -e "$path" "$tree/bin" "$tree/lib" || fail "these files name $path"
    done
    for path in "$tree"/bin/*; do
        "$path" --help > /dev/null || fail "$path does not run"
    done
}

[ "$(id -u)" = 0 ] || fail "needs root, for debootstrap and chroot: sudo make dist DEPS=$prefix"
[ "$(uname -m)" = x86_64 ] || fail "makes archives for x86-64 on x86-64"
mkdir -p "$base" "$folder"
done_once system make_system
build_libraries
done_once faiss build_faiss "$base/faiss/lib" ''
done_once faiss-v3 build_faiss "$base/faiss/lib/glibc-hwcaps/x86-64-v3" "$v3_flags"
build_programs all

version=$(sed -n 's/^#define RETRO_VERSION "\(.*\)"/\1/p' "$here/../config/base/base.h")
name=retro-server-$version-x86_64
tree=$folder/$name beside=$folder/$name/lib/retro-server
licences=$tree/share/doc/retro-server/licences versions=$licences/VERSIONS
make_tree
check_tree
when=$(git -C "$here/.." log -1 --format=%ct 2> /dev/null || date +%s)
tar -C "$folder" --sort=name --mtime="@${SOURCE_DATE_EPOCH:-$when}" --owner=0 --group=0 --numeric-owner -c "$name" |
    gzip -9n > "$folder/$name.tar.gz.new"
mv "$folder/$name.tar.gz.new" "$folder/$name.tar.gz"
say "$folder/$name.tar.gz, $(($(stat -c %s "$folder/$name.tar.gz") / 1000000)) MB, for $(newest GLIBC | tr _ ' ') or later"
