#!/usr/bin/env bash
# tests/fuzz/run.sh SECONDS [NAME...]: builds every fuzz target with clang's libFuzzer, ASan and UBSan, replays its
# corpus and every crash kept, then fuzzes each for SECONDS (0: replay only), as many at once as there are cores. `make
# fuzz` calls it. FUZZ_RUNS=N ends each target after N inputs, drawn from a fixed seed: what a change is refused for is
# then found again by whoever runs the same.
#
# One line a target; the last line is "N passed, N failed". New finds stay in build/fuzz/corpus, crashes in
# build/fuzz/crashes: a crash that is fixed is kept, with its input moved to tests/fuzz/crashes/NAME/.
set -uo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:?usage: tests/fuzz/run.sh SECONDS [NAME...]}
shift
build=build/fuzz
passed=0 failed=0
mkdir -p $build/crashes

[ $# -gt 0 ] || set -- $(ls tests/fuzz/fuzz_*.c | sed -E 's|.*/fuzz_(.*)\.c|\1|')
targets=()
for name in "$@"; do targets+=("$build/tests/fuzz/fuzz_$name"); done
make --no-print-directory -s -j"$(nproc)" BUILD=$build CC=clang CXX=clang++ \
    SANITIZE=fuzzer-no-link,address,undefined "${targets[@]}" > $build/build.log 2>&1 ||
    { tail -40 $build/build.log; echo "the build failed"; echo "0 passed, 1 failed"; exit 1; }

# complain NAME LOG WHAT
complain() {
    printf 'FAILED %-14s %s\n' "$1" "$3"
    grep -vE '^#[0-9]+\s+(NEW|REDUCE|RELOAD|pulse)' "$2" | tail -60 | cut -c 1-2000 | sed 's|^|    |'
    return 1
}

# Fails when the target does. Prints at its end, in one piece.
run_target() {
    local name=$1 program=$build/tests/fuzz/fuzz_$1 log=$build/$1.log finds=$build/corpus/$1
    local limits=(-timeout=60 -rss_limit_mb=2048 -artifact_prefix="$build/crashes/$name-")
    local drawn=(-max_total_time="$seconds")
    [ -z "${FUZZ_RUNS:-}" ] || drawn+=(-runs="$FUZZ_RUNS" -seed=1)
    local inputs
    mkdir -p "$finds"
    mapfile -t inputs < <(find "tests/fuzz/corpus/$name" "tests/fuzz/crashes/$name" -type f 2>/dev/null | sort)
    [ ${#inputs[@]} -gt 0 ] || { complain "$name" /dev/null "no seeds in tests/fuzz/corpus/$name"; return 1; }
    "$program" "${limits[@]}" "${inputs[@]}" > "$log" 2>&1 < /dev/null ||
        { complain "$name" "$log" "replaying the corpus"; return 1; }
    if [ "$seconds" -gt 0 ]; then
        "$program" "${limits[@]}" "${drawn[@]}" -print_final_stats=1 "$finds" "tests/fuzz/corpus/$name" \
            > "$log" 2>&1 < /dev/null || { complain "$name" "$log" "fuzzing; the input is in $build/crashes"; return 1; }
    fi
    printf 'ok     %-14s %4d inputs replayed' "$name" ${#inputs[@]}
    [ "$seconds" -gt 0 ] && printf ', %9s runs, coverage %s' \
        "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
        "$(sed -nE 's/.* cov: ([0-9]+) .*/\1/p' "$log" | tail -1)"
    echo
}

targets=()
for name in "$@"; do
    [ "$(jobs -rp | wc -l)" -lt "$(nproc)" ] || wait -n
    { report=$(run_target "$name"); status=$?; echo "$report"; exit $status; } &
    targets+=($!)
done
for target in "${targets[@]}"; do
    if wait "$target"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
