#!/usr/bin/env bash
# tests/arm64.sh: cross-builds for arm64 and runs C tests there under qemu; `make arm64-test` calls it.
#
# The libraries for arm64 are unpacked into a folder, $DEPS/arm64: the packages of the machine itself stay as they are,
# except for the cross compiler, qemu-user and mmdebstrap, which are installed where they are missing. FAISS, CUDA, MPI,
# NCCL and curl are left out. As many programs run at once as there are cores. One line a test program; the last line is "N
# passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/.."
build=build/arm64
root=${DEPS:-$HOME/.cache/retro-server}/arm64
tools=(gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user mmdebstrap)
libraries=libc6-dev,libstdc++-12-dev,libgcc-12-dev,libgomp1,libmicrohttpd-dev,libjansson-dev,libpcre2-dev
libraries+=,libutf8proc-dev,libsentencepiece-dev,libxml2-dev,libarchive-dev,libyaml-dev,libxxhash-dev,libjpeg62-turbo-dev
libraries+=,zlib1g-dev,libgmime-3.0-dev,libseccomp-dev,libpng-dev,libwebp-dev,libcmocka-dev
libraries+=,libpoppler-glib-dev,libtesseract-dev,libleptonica-dev,libsqlite3-dev
tests=(unit/test_base unit/test_quantise unit/test_tokenizer unit/test_unigram unit/test_grid unit/test_json_writer
    unit/test_pictures ops/test_ops_linear ops/test_ops_attention ops/test_ops_shares ops/test_ops_rows ops/test_ops_blocks ops/test_ops_supers ops/test_ops_pack
    ops/test_ops_sample ops/test_ops_pairs
    golden/test_session tp/test_comm)

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

missing=$(for p in "${tools[@]}"; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || echo "$p"; done)
if [ -n "$missing" ]; then
    as_root apt-get update -qq
    DEBIAN_FRONTEND=noninteractive as_root apt-get install -y -qq --no-install-recommends $missing || exit 1
fi
mkdir -p $build "$(dirname "$root")"
if [ "$(cat "$root/complete" 2>/dev/null)" != "$libraries" ]; then
    rm -rf "$root"
    . /etc/os-release
    as_root mmdebstrap --quiet --variant=extract --architectures=arm64 --include="$libraries" "$VERSION_CODENAME" "$root" &&
        as_root chown -R "$(id -u):$(id -g)" "$root" && echo "$libraries" > "$root/complete" || exit 1
fi

# What each processor takes; ops/test_ops_variant sees it.
choices=("cortex-a72 neon" "cortex-a76 dotprod" "neoverse-n1 dotprod" "max bf16")

programs=("${tests[@]/#/$build/tests/}" $build/tests/ops/test_ops_variant)
if ! make --no-print-directory -s -j"$(nproc)" BUILD=$build FAISS= CUDA= MPI= NCCL= CURL= \
    CC="${CCACHE-} aarch64-linux-gnu-gcc --sysroot=$root" CXX="${CCACHE-} aarch64-linux-gnu-g++ --sysroot=$root" \
    AR=aarch64-linux-gnu-ar "${programs[@]}" > $build/build.log 2>&1; then
    tail -40 $build/build.log
    echo "0 passed, 1 failed"
    exit 1
fi

# The variants whose kernels of an operation are not another's: each is tested once, on a processor that has all.
variants_of() {
    case $1 in
        ops/test_ops_attention | ops/test_ops_linear | ops/test_ops_rows | ops/test_ops_sample) echo generic neon ;;
        ops/test_ops_pairs) echo generic neon bf16 ;;
        ops/test_ops_shares) echo neon bf16 ;; # test_ops_attention takes three minutes of qemu with bf16
        *) echo neon dotprod i8mm ;;
    esac
}

# run_program PROGRAM PROCESSOR [VARIABLE=VALUE]...
run_program() {
    local program=$1 processor=$2 name=${1#"$build"/tests/} start=$SECONDS
    local log=$program.$processor.log
    shift 2
    if timeout 900 env "$@" qemu-aarch64 -cpu "$processor" -L "$root" "$program" > "$log" 2>&1 &&
        grep -q '\[  PASSED  \] [1-9]' "$log"; then
        printf 'ok     %-28s %-12s %d s\n' "$name" "$processor" $((SECONDS - start))
    else
        printf 'FAILED %-28s %-12s\n%s\n' "$name" "$processor" "$(tail -20 "$log" | sed 's/^/    /')"
        return 1
    fi
}

run_choices() {
    local choice status=0
    for choice in "${choices[@]}"; do
        run_program $build/tests/ops/test_ops_variant "${choice% *}" EXPECTED_KERNELS="${choice#* }" || status=1
    done
    return $status
}

passed=0 failed=0 running=()
run_choices &
running+=($!)
for name in "${tests[@]}"; do
    [ "$(jobs -rp | wc -l)" -lt "$(nproc)" ] || wait -n
    run_program "$build/tests/$name" max TEST_VARIANTS="$(variants_of "$name")" &
    running+=($!)
done
for job in "${running[@]}"; do
    if wait "$job"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
