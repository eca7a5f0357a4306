#!/usr/bin/env bash
# tools/faiss.sh FOLDER FLAGS [CMAKE_OPTION...]: builds FAISS with its C API from the distribution's own source package,
# whose library has no C symbols, and puts lib/ and include/ into FOLDER; FLAGS are the compiler's. `make deps` and
# `make deb` call it.
set -euo pipefail

folder=${1:?usage: faiss.sh FOLDER FLAGS [CMAKE_OPTION...]} flags=${2?usage: faiss.sh FOLDER FLAGS [CMAKE_OPTION...]}
version=1.7.3

# shellcheck source=tools/source_package.sh
. "$(dirname "$0")/source_package.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source_package faiss libfaiss-dev "$work"
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
