#!/usr/bin/env bash
# tools/faiss.sh FOLDER FLAGS [CMAKE_OPTION...]: builds FAISS with its C API from the distribution's own source package,
# whose library has no C symbols, and puts lib/ and include/ into FOLDER; FLAGS are the compiler's. `make deps` and
# `make deb` call it.
set -euo pipefail

folder=${1:?usage: faiss.sh FOLDER FLAGS [CMAKE_OPTION...]} flags=${2?usage: faiss.sh FOLDER FLAGS [CMAKE_OPTION...]}
version=1.7.3

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# The source entry of the same mirror and suite that libfaiss-dev itself comes from.
source_entry() {
    apt-cache policy libfaiss-dev |
        awk '$1 ~ /^[0-9]+$/ && $2 ~ /:\/\// { split($3, s, "/");
             print "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]", $2, s[1], s[2]; exit }'
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -n "$(source_entry)" ] || as_root apt-get update -qq
source_entry > "$work/source.list"
mkdir -p "$work/lists/partial" "$work/cache"
private=(-o "Dir::Etc::sourcelist=$work/source.list" -o Dir::Etc::sourceparts=-
    -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=)
(cd "$work" && apt-get -qq "${private[@]}" update && apt-get -qq "${private[@]}" source faiss)
# The library includes cublas_v2.h, which does not go together with the header it replaced.
sed -i 's/<cublas\.h>/<cublas_v2.h>/' "$work/faiss-$version/c_api/gpu/DeviceUtils_c.h"
cmake -S "$work/faiss-$version" -B "$work/build" -DCMAKE_BUILD_TYPE=Release \
    -DFAISS_ENABLE_C_API=ON -DFAISS_ENABLE_PYTHON=OFF -DBUILD_SHARED_LIBS=ON -DBUILD_TESTING=OFF \
    -DFAISS_OPT_LEVEL=generic -DCMAKE_CXX_FLAGS="$flags" \
    -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON -DCMAKE_INSTALL_RPATH_USE_LINK_PATH=ON -DCMAKE_INSTALL_RPATH='$ORIGIN' \
    "${@:3}" > "$work/cmake.log" || { cat "$work/cmake.log"; exit 1; }
cmake --build "$work/build" -j"$(nproc)" --target faiss faiss_c > "$work/build.log" 2>&1 ||
    { tail -40 "$work/build.log"; exit 1; }
rm -rf "$folder"
mkdir -p "$folder/lib" "$folder/include/faiss/c_api"
cp "$work"/build/faiss/libfaiss.so "$work"/build/c_api/libfaiss_c.so "$folder/lib/"
cd "$work/faiss-$version/c_api"
find . -name '*.h' -exec cp --parents {} "$folder/include/faiss/c_api/" \;
