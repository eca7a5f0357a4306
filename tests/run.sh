#!/usr/bin/env bash
# tests/run.sh BUILD [--c-only]: builds everything and runs every test; `make test` calls it.
#
# One line a test program; the full log only where something failed. The last line is "N passed, N failed"; the exit
# status is 0 only if nothing failed. --c-only leaves the Python tests out (sanitizer builds). Run by make, the
# variables of its command line (SANITIZE=, CC=) hold for the build here too.
set -uo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: tests/run.sh BUILD [--c-only]}
c_only=${2:-}
deps=${DEPS:-$HOME/.cache/retro-server}
logs=$build/test-logs
passed=0 failed=0
mkdir -p "$logs"

# report NAME PASSED FAILED SKIPPED SECONDS LOG
report() {
    local skipped='' verdict=ok
    [ "$4" -gt 0 ] && skipped=", $4 skipped"
    [ "$3" -gt 0 ] && verdict=FAILED
    printf '%-6s %-34s %5d passed, %d failed%s  %s s\n' "$verdict" "$1" "$2" "$3" "$skipped" "$5"
    [ "$3" -gt 0 ] && sed "s|^|    |" "$6"
    passed=$((passed + $2)) failed=$((failed + $3))
}

# number PATTERN LOG: the last number that PATTERN captures, 0 when there is none.
number() {
    local n
    n=$(sed -nE "s/.*$1.*/\1/p" "$2" | tail -1)
    echo "${n:-0}"
}

seconds_since() { awk -v a="$1" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }'; }

# A crash, a time-out, a sanitizer report and a program that runs no test at all count as a failure.
run_c_test() {
    local program=$1 name=${1##*/tests/} log start status p f s
    log=$logs/${name//\//-}.log
    start=$(date +%s.%N)
    timeout --kill-after=10 600 "$program" > "$log" 2>&1
    status=$?
    p=$(number '\[  PASSED  \] ([0-9]+) test' "$log")
    f=$(number '\[  FAILED  \] ([0-9]+) test' "$log")
    s=$(number '\[  SKIPPED \] ([0-9]+) test' "$log")
    if [ "$f" = 0 ] && { [ $status != 0 ] || [ $((p + s)) = 0 ]; }; then
        echo "exit status $status, $p tests passed" >> "$log"
        f=1
    fi
    report "$name" "$p" "$f" "$s" "$(seconds_since "$start")" "$log"
}

# tests/train needs PyTorch, which the server does not: make test-train runs it.
run_python_tests() {
    local log=$logs/pytest.log start status p f
    if [ ! -x "$deps/venv/bin/python" ]; then
        echo "no Python environment in $deps (make deps makes it): the Python tests do not run"
        return
    fi
    start=$(date +%s.%N)
    RETRO_BUILD=$build RETRO_DEPS=$deps timeout --kill-after=10 1200 "$deps/venv/bin/python" -m pytest -q -p no:cacheprovider tests --ignore=tests/train \
        > "$log" 2>&1 < /dev/null
    status=$?
    p=$(number '[^0-9]([0-9]+) passed' <(sed 's/^/ /' "$log"))
    f=$(($(number '[^0-9]([0-9]+) failed' <(sed 's/^/ /' "$log")) +
        $(number '[^0-9]([0-9]+) errors?[, ]' <(sed 's/^/ /' "$log"))))
    if [ "$f" = 0 ] && [ $status != 0 ]; then
        echo "pytest: exit status $status" >> "$log"
        f=1
    fi
    report "pytest" "$p" "$f" "$(number '[^0-9]([0-9]+) skipped' <(sed 's/^/ /' "$log"))" "$(seconds_since "$start")" \
        "$log"
}

echo "building in $build"
if ! make --no-print-directory -s -j"$(nproc)" BUILD="$build" all c-tests > "$logs/build.log" 2>&1; then
    tail -60 "$logs/build.log"
    echo "the build failed"
    echo "0 passed, 1 failed"
    exit 1
fi
# The list is the Makefile's, so that a test that was deleted does not run from an old build.
for program in $(make --no-print-directory -s BUILD="$build" list-c-tests); do
    run_c_test "$program"
done
[ "$c_only" = --c-only ] || run_python_tests
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
