#!/usr/bin/env bash
# tests/cuda/spills.sh BUILD: what nvcc said about the kernels it compiled: every architecture is there, and no kernel
# keeps registers in memory. `make cuda-check` calls it after compiling.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:?usage: tests/cuda/spills.sh BUILD}
failed=0
kernels=0
for source in kernels/cuda/*.cu; do
    log=$build/${source%.cu}.cu.ptxas object=$build/$source.o
    if [ ! -f "$log" ] || [ ! -f "$object" ]; then
        echo "$source: not compiled in $build"
        failed=1
        continue
    fi
    kernels=$((kernels + $(grep -c 'bytes spill stores' "$log" || true)))
    if grep -B1 'bytes spill stores' "$log" | grep -v -e ' 0 bytes spill stores, 0 bytes spill loads' -e '^--$' \
        -e 'Function properties' | grep .; then
        echo "$source: registers are spilled"
        failed=1
    fi
    grep -q __global__ "$source" || continue
    for code in $(sed -nE 's/^GPUS := (.*)/\1/p' Makefile); do
        grep -q "for 'sm_$code'" "$log" || { echo "$source: no code for sm_$code"; failed=1; }
    done
    # The toolkit's tool for looking into objects is a package of its own.
    if command -v cuobjdump > /dev/null; then
        cuobjdump --list-ptx "$object" | grep -q PTX || { echo "$source: no PTX for later architectures"; failed=1; }
    fi
done
[ "$kernels" -gt 0 ] || failed=1
[ "$failed" = 0 ] && echo "$kernels kernels and architectures, 0 bytes spilled"
exit "$failed"
