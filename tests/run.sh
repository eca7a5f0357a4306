#!/usr/bin/env bash
# tests/run.sh BUILD [--c-only]: builds everything and runs every test; `make test` calls it.
#
# C tests run as many at once as there are cores, Python tests one after another. One line a test program; the full log
# only where something failed. The last line is "N passed, N failed"; the exit
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
# OpenMP's threads, which FAISS uses, wait for each other in busy loops otherwise. Beside other work on two cores most of
# the time of a test goes there.
export OMP_WAIT_POLICY=passive

# report NAME PASSED FAILED SKIPPED SECONDS LOG: what is shown of a program.
report() {
    local skipped='' verdict=ok
    [ "$4" -gt 0 ] && skipped=", $4 skipped"
    [ "$3" -gt 0 ] && verdict=FAILED
    printf '%-6s %-34s %5d passed, %d failed%s  %s s\n' "$verdict" "$1" "$2" "$3" "$skipped" "$5"
    [ "$3" -gt 0 ] && show_failure "$6"
    return 0
}

# show_failure LOG: the names of what failed, which must not drown, then the log without pytest's rows of dots.
show_failure() {
    grep -E '^(FAILED|ERROR|\[  FAILED  \]) ' "$1" | sed 's|^|  ! |'
    grep -vE '^[.sFExX]+ +\[ *[0-9]+%\]$' "$1" | sed 's|^|    |'
}

# number PATTERN LOG: the last number that PATTERN captures, 0 when there is none.
number() {
    local n
    n=$(sed -nE "s/.*$1.*/\1/p" "$2" | tail -1)
    echo "${n:-0}"
}

seconds_since() { awk -v a="$1" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }'; }

# run_c_test PROGRAM LOG: leaves "PASSED FAILED" in LOG.count. A crash, a time-out, a sanitizer report and a program that
# runs no test at all count as a failure.
run_c_test() {
    local program=$1 name=${1##*/tests/} log=$2 start status p f s
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
    echo "$p $f" > "$log.count"
    report "$name" "$p" "$f" "$s" "$(seconds_since "$start")" "$log" > "$log.report"
    cat "$log.report"
}

# The list is the Makefile's, so that a test that was deleted does not run from an old build.
run_c_tests() {
    local program name log p f counts=()
    for program in $(make --no-print-directory -s BUILD="$build" list-c-tests); do
        name=${program##*/tests/}
        log=$logs/${name//\//-}.log
        rm -f "$log.count"
        counts+=("$log.count")
        [ "$(jobs -rp | wc -l)" -lt "$(nproc)" ] || wait -n
        run_c_test "$program" "$log" &
    done
    wait
    for log in "${counts[@]}"; do
        { read -r p f < "$log"; } 2> /dev/null || { p=0 f=1; }
        passed=$((passed + p)) failed=$((failed + f))
    done
}

# These need what the server does not (PyTorch, a browser, many packages, proxies, namespaces, a bare system as root): make test-train,
# page-test, clients-test, agents-test, replicas-test, hosts-test, deb-test, container-test and dist-test run them.
apart=(train page clients agents replicas hosts deb container dist)
run_python_tests() {
    local log=$logs/pytest.log start status p f
    if [ ! -x "$deps/venv/bin/python" ]; then
        echo "no Python environment in $deps (make deps makes it): the Python tests do not run"
        return
    fi
    start=$(date +%s.%N)
    # Most of these tests wait for servers, so one more process than there are cores keeps the cores busy.
    RETRO_BUILD=$build RETRO_DEPS=$deps timeout --kill-after=10 2400 "$deps/venv/bin/python" -m pytest -q \
        -p no:cacheprovider -n $(($(nproc) + 1)) --dist loadfile tests \
        "${apart[@]/#/--ignore=tests/}" > "$log" 2>&1 < /dev/null
    status=$?
    p=$(number '[^0-9]([0-9]+) passed' <(sed 's/^/ /' "$log"))
    f=$(($(number '[^0-9]([0-9]+) failed' <(sed 's/^/ /' "$log")) +
        $(number '[^0-9]([0-9]+) errors?[, ]' <(sed 's/^/ /' "$log"))))
    if [ "$f" = 0 ] && [ $status != 0 ]; then
        echo "pytest: exit status $status" >> "$log"
        f=1
    fi
    passed=$((passed + p)) failed=$((failed + f))
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
run_c_tests
[ "$c_only" = --c-only ] || run_python_tests
[ "$c_only" = --c-only ] || echo "not run here: the page in a browser (make page-test), clients of others (make clients-test), training (make test-train)"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
