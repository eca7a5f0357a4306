#!/usr/bin/env python3
"""The cost of one foreign busy process, on one of two cores, for a decoder with two threads.

    busy_race.py --peer BIN/llama-bench --peer-model m-q8_0.gguf --json out.jsonl

By turns: ours with one thread on the quiet machine, and ours with two threads while a process in a session of its own
spins, pinned to the last CPU. The goal is that the second is at least 0.9 of the first: a thread that has to share its
core must not hold up the other. The same for llama-bench is the yardstick; it is slow there, so it writes few tokens
(--peer-tokens) and takes part in fewer rounds (--peer-rounds). Shape m on both sides, without retrieval.
"""
import argparse
import contextlib
import os
import subprocess
import sys

import race

SPIN = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nprint(flush=True)\nwhile True: pass"


@contextlib.contextmanager
def busy_process(cpu):
    """Its pid, from when it spins. A session of its own, as a foreign program's: the scheduler may group by session."""
    p = subprocess.Popen([sys.executable, "-c", SPIN, str(cpu)], stdout=subprocess.PIPE, start_new_session=True)
    try:
        p.stdout.readline()
        yield p.pid
    finally:
        p.kill()
        p.wait()
        p.stdout.close()


def measure(command, rate_of, busy):
    cpu = max(os.sched_getaffinity(0))
    with busy_process(cpu) if busy else contextlib.nullcontext() as pid:
        with race.Others([pid] if busy else []) as others:
            done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return {"rate": rate_of(race.json_lines(done.stdout)), "others": others.cpus}


def our_rate(lines):
    return next(line["value"] for line in lines if line["name"] == "decode")


def peer_rate(lines):
    return next(line["avg_ts"] for line in lines if line["n_gen"])


def ours(a, threads):
    return f"{a.bench} --dtype {a.dtype} --threads {threads} --tokens {a.tokens} --rounds 1 --json".split()


def peer(a, threads):
    return [a.peer, "-m", a.peer_model, "-t", str(threads), "-p", "0", "-n", str(a.peer_tokens), "-r", "1", "-o", "jsonl"]


def race_of(name, command, rate_of, rounds, path):
    entries = {
        f"{name}, 1 thread, quiet": lambda: measure(command(1), rate_of, False),
        f"{name}, 2 threads, busy": lambda: measure(command(2), rate_of, True),
    }
    results = race.run_rounds("busy", entries, rounds, path)
    alone, shared = entries
    race.print_results(f"{name}: a foreign process spins on one of the cores", results, {"rate": "tok/s"},
                       [("2 threads busy / 1 thread quiet", "rate", shared, [alone])])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bench", default="build/retro-bench decode --model m", help="our command but for type and threads")
    p.add_argument("--dtype", default="int8")
    p.add_argument("--tokens", type=int, default=32)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--peer", help="llama-bench")
    p.add_argument("--peer-model", help="GGUF file of the same shape and bits")
    p.add_argument("--peer-tokens", type=int, default=8)
    p.add_argument("--peer-rounds", type=int, default=2)
    p.add_argument("--json", help="append every result to this file")
    a = p.parse_args()
    if len(os.sched_getaffinity(0)) != 2:
        sys.exit("this needs exactly two CPUs: run it under taskset")
    race_of(f"ours {a.dtype}", lambda threads: ours(a, threads), our_rate, a.rounds, a.json)
    if a.peer:
        race_of("llama-bench", lambda threads: peer(a, threads), peer_rate, a.peer_rounds, a.json)


if __name__ == "__main__":
    main()
