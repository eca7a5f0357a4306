#!/usr/bin/env bash
# tools/gpu_check.sh: everything that only a GPU can show, in less than eight minutes and without a network.
#
#   gpu_check.sh pack FOLDER FILE...         programs, libraries (*.so) that they open, the libraries that both need and a
#                                            stamp of the sources into FOLDER
#   gpu_check.sh run [--device cuda:0] [--bundle build/gpu] [--seconds 465] [OUT]
#
# `make gpu-bundle` packs where there is a toolkit but no GPU; on the GPU's machine `run` uses the bundle if it was made
# from the same sources, and else builds. Every stage has its own time limit and its own log in OUT, and the results are
# written again after each, so that neither a failure nor a kill loses the others:
#   device      which GPU, driver and toolkit, and what is missing
#   build       nothing to do with a bundle; otherwise make gpu-bundle, with whatever libraries there are
#   ops         every op against the CPU, on the device; steps as graphs against steps op by op; quantised models;
#               the index on the GPU against the CPU's
#   golden      the reference's logits and tokens, on the device
#   sanitizer   compute-sanitizer's four tools on every 16th case of the op tests, quantised weights included
#   bench       retro-bench device and tests/cuda/peer_torch.py by turns, quantised weights, searches of a million vectors
# OUT/gpu.json and OUT/gpu.md hold the results; those of a real GPU are copied to docs/results.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

# The sources of a bundle.
sources_stamp() {
    find kernels config retro retrieval tools tests/cuda tests/ops tests/unit \( -name '*.[ch]' -o -name '*.cu*' -o -name '*.cc' \) -type f -print0 |
        LC_ALL=C sort -z | xargs -0 cat | cksum
}

# Libraries that every machine with a compiler has stay behind: they belong to its C library. So does cuBLAS, which is
# large and comes with the toolkit or with PyTorch. The rest is large enough to be carried compressed.
pack() {
    local folder=$1 loose library
    shift
    loose=$(mktemp -d)
    mkdir "$loose/lib"
    for program in "$@"; do
        case $program in
            *.so) strip -o "$loose/lib/${program##*/}" "$program" ;;
            *) strip -o "$loose/${program##*/}" "$program" ;;
        esac
    done
    ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
        grep -vE '/(libc|libm|libstdc\+\+|libgcc_s|libpthread|libdl|librt|libcublas|libcublasLt)\.so' |
        while read -r library; do
        strip -o "$loose/lib/${library##*/}" "$library"
    done
    rm -rf "$folder"
    mkdir -p "$folder"
    # All programs hold the same kernels: one thread with a window larger than a program finds them again, and halves the bundle.
    XZ_OPT='-9 -T1' tar -C "$loose" -cJf "$folder/programs.tar.xz" .
    rm -rf "$loose"
    sources_stamp > "$folder/SOURCES"
    echo "$folder: $(du -sm "$folder" | cut -f1) MiB"
}

# Python reads what xz wrote on machines that have no xz.
unpack() { [ ! -f "$bundle/programs.tar.xz" ] || python3 -m tarfile -e "$bundle/programs.tar.xz" "$bundle"; }

# The folders that hold a cuBLASLt, with colons between: the toolkit's, the system's, those of Python packages. All of
# them, because a program wants one version, and finds it by its name.
find_cublas() {
    local folder
    {
        ls -d /usr/local/cuda*/lib64 /usr/local/cuda*/targets/*/lib /opt/cuda*/lib64 /usr/lib/*-linux-gnu /usr/lib64
        python3 -c 'import glob, sys; print(*(f for p in sys.path for f in glob.glob(p + "/nvidia/*/lib")), sep="\n")'
    } 2> /dev/null | while read -r folder; do
        compgen -G "$folder/libcublasLt.so.*" > /dev/null && echo "$folder"
    done | paste -sd:
}

# attempt SECONDS COMMAND...: one command of a stage, with a limit of its own, so that one that hangs leaves time for the
# others; not at all when the stage's own limit is near.
attempt() {
    local left=$((limit - SECONDS - 5)) most=$1
    shift
    if [ $left -lt 3 ]; then
        echo "no time was left for $*"
        return 1
    fi
    timeout --kill-after=5 $((most < left ? most : left)) "$@"
}

# ours SECONDS PROGRAM ARGUMENT...: a program of the bundle with its libraries; nobody else's programs see those.
ours() { attempt "$1" env LD_LIBRARY_PATH="$bundle/lib${cublas:+:$cublas}" "$bundle/$2" "${@:3}"; }

# PyTorch's version is asked without loading it, which takes long the first time.
check_device() {
    local status=0
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2> /dev/null | sed -n 's/^/gpu: /p' |
        grep . || { echo "missing: nvidia-smi finds no GPU"; status=1; }
    echo "toolkit: $(nvcc --version 2> /dev/null | sed -n 's/.*release \([^,]*\).*/\1/p' | grep . || echo none)"
    echo "cublas: ${cublas:-missing: no libcublasLt}"
    echo "sanitizer: $(command -v compute-sanitizer || echo 'missing: no compute-sanitizer')"
    echo "torch: $(python3 -c 'import importlib.metadata as m; print(m.version("torch"))' 2> /dev/null || echo 'missing: no PyTorch')"
    return $status
}

# Without all libraries the op tests alone may still build: they need cmocka and the toolkit.
check_build() {
    local jobs
    jobs=$(nproc)
    if [ "$(cat "$bundle/SOURCES" 2> /dev/null)" = "$(sources_stamp)" ]; then
        echo "$bundle was made from these sources"
        unpack
        return
    fi
    echo "$bundle is missing or was made from other sources: building"
    make -s -j"$jobs" WARNINGS= gpu-bundle && unpack && return
    echo "building what needs cmocka and the toolkit alone"
    make -s -j"$jobs" WARNINGS= gpu-ops && pack "$bundle" build/tests/cuda/test_cuda_{ops,attention,blocks,experts,delta} && unpack
}

check_ops() {
    local status=0 program
    for program in ops attention blocks experts delta steps; do ours 40 test_cuda_$program "$device" || status=1; done
    if [ -x "$bundle/test_index_gpu" ]; then
        ours 40 test_index_gpu "$device" || status=1
    else
        echo "missing: no FAISS with its GPU part (make deps CUDA=1, then make gpu-bundle)"
    fi
    return $status
}

check_golden() {
    local status=0
    ours 30 retro-parity --set model.device="$device" --tolerance 2e-4 tests/golden/retro/*/ || status=1
    ours 30 retro-parity --set model.device="$device" --set model.dtype=bf16 --tolerance 0.5 tests/golden/retro/*/ || status=1
    return $status
}

# All programs at once, each in a log of its own: most of their time goes into starting. Errors of CUDA's functions are none:
# the tests ask for more memory than there is, on purpose.
check_sanitizer() {
    local status=0 tool program running log
    log=$(mktemp)
    for tool in memcheck racecheck synccheck initcheck; do
        running=()
        for program in ops attention blocks experts delta; do
            attempt 25 env LD_LIBRARY_PATH="$bundle/lib${cublas:+:$cublas}" \
                compute-sanitizer --tool "$tool" --report-api-errors no --error-exitcode 9 --print-limit 10 \
                "$bundle/test_cuda_$program" "$device" 16 > "$log.$program" 2>&1 &
            running+=($!)
        done
        for program in ops attention blocks experts delta; do
            wait "${running[0]}" || status=1
            running=("${running[@]:1}")
            echo "== $tool $program"
            cat "$log.$program"
        done
    done
    rm -f "$log" "$log".*
    return $status
}

# One round against PyTorch, by turns, so that both see the same state of the machine; `took` is its time.
race() {
    local status=0 start=$SECONDS
    ours 60 retro-bench device --device "$device" --limits $shapes/gpt-1.1b || status=1
    attempt 60 python3 $peer --limits $shapes/gpt-1.1b || status=1
    ours 90 retro-bench device --device "$device" $shapes/gpt-8b || status=1
    attempt 60 python3 $peer $shapes/gpt-8b || status=1
    took=$((SECONDS - start))
    return $status
}

# The figures that matter most come first, and twice again where there is time.
check_bench() {
    local status=0 took=0 round kind dtype shapes=tools/shapes peer=tests/cuda/peer_torch.py
    race || status=1
    for dtype in int8 int4 fp8; do
        ours 40 retro-bench device --device "$device" --dtype $dtype $shapes/gpt-1.1b || status=1
    done
    ours 40 retro-bench device --device "$device" $shapes/retro-1.1b || status=1
    attempt 90 python3 $peer --compile $shapes/gpt-1.1b || status=1
    if [ -x "$bundle/test_index_gpu" ]; then
        for kind in flat ivf; do
            ours 40 retro-bench search --device "$device" --index $kind --json || status=1
        done
    fi
    ours 40 retro-bench device --device "$device" --eager $shapes/gpt-1.1b || status=1
    for round in 2 3; do
        [ $((SECONDS + took + 10)) -lt "$limit" ] || break
        race || status=1
    done
    return $status
}

# stage NAME SECONDS: check_NAME with a time limit of its own, within that of all; its log, and the results so far.
stage() {
    local name=$1 start=$SECONDS status=124
    limit=$2
    [ $((start + limit)) -le "$total" ] || limit=$((total - start))
    if [ "$limit" -gt 0 ]; then
        timeout --kill-after=5 "$limit" bash -c "SECONDS=0; check_$name" > "$out/$name.log" 2>&1 < /dev/null
        status=$?
    else
        echo "no time was left" > "$out/$name.log"
    fi
    printf '%s\t%d\t%d\t%d\n' "$name" $status $((SECONDS - start)) "$limit" >> "$stages"
    printf '%-10s %-9s %4d s of %d\n' "$name" "$([ $status = 0 ] && echo ok || echo "FAILED $status")" \
        $((SECONDS - start)) "$limit"
    [ $status = 0 ] || { tail -5 "$out/$name.log" | sed 's/^/    /'; failed=1; }
    python3 tools/gpu_check_report.py "$device" "$stages" "$out" || failed=1
}

# The toolkit's programs need not be in PATH where its libraries are found.
run() {
    out=build/gpu-check device=cuda:0 bundle=build/gpu failed=0 total=465 stages=$(mktemp)
    while [ $# -gt 0 ]; do
        case $1 in
            --device) device=$2 && shift ;;
            --bundle) bundle=$2 && shift ;;
            --seconds) total=$2 && shift ;;
            *) out=$1 ;;
        esac
        shift
    done
    trap 'rm -f "$stages"' EXIT
    PATH=$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer
    cublas=$(find_cublas)
    export device bundle cublas limit
    export -f attempt ours pack unpack sources_stamp check_device check_build check_ops check_golden check_sanitizer race check_bench
    mkdir -p "$out"
    stage device 20
    stage build 120
    stage ops 75
    stage golden 45
    stage sanitizer 105
    stage bench 300
    if [[ $device == cuda:* ]] && ! grep -q '"gpu": null' "$out/gpu.json"; then
        mkdir -p docs/results
        cp "$out/gpu.json" "$out/gpu.md" docs/results/
    fi
    cat "$out/gpu.md"
    return $failed
}

[ "${BASH_SOURCE[0]}" = "$0" ] || return 0 # read for its functions
case ${1:-} in
    pack | run) "$@" ;;
    *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
