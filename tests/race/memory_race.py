#!/usr/bin/env python3
"""Tokens a second of a packed model whose experts do not fit in memory, of several programs by turns.

    memory_race.py FOLDER --memory 520 --tokens 32 --rounds 4 BEFORE/retro-server build/retro-server

Each program serves the folder in a control group with so many MiB, beginning with none of its weights in memory; 0 MiB is no group. A
line for each round: tokens a second, and what they are without the time in which the thread that computes waited for a core, which
others took; the milliseconds of a token in which that thread ran and slept; what was read from disk and waited for; the processor's
time. Programs of one model have to write the same answer: `answer` is its hash."""
import argparse
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import ports  # noqa: E402
from small_machine import small_machine  # noqa: E402

OPTIONS = ["server.host=127.0.0.1", "server.max_sequences=1", "server.max_context=1024", "server.max_step_tokens=64", "server.prefix_cache_mb=0",
           "retrieval.collection=", "retrieval.embedder="]
PROMPTS = [[100 + 37 * i for i in range(8)], [1000 + 91 * i for i in range(8)]]


def fetch(port, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
    return urllib.request.urlopen(request, timeout=600).read()


def complete(port, prompt, tokens):
    """Temperature 2: tokens that differ choose different experts."""
    body = {"prompt": [prompt], "max_tokens": tokens, "temperature": 2, "seed": 7, "ignore_eos": True, "logprobs": 1}
    return json.loads(fetch(port, "/v1/completions", body))["choices"][0]["logprobs"]


def wait_until_ready(child, port):
    for _ in range(2400):
        try:
            fetch(port, "/health")
            return
        except OSError:
            if child.poll() is not None:
                sys.exit("the server ended: run it by hand to see why")
        time.sleep(0.05)
    sys.exit("the server is not ready after two minutes")


def count(child, port):
    """Bytes read for experts, page faults that waited for the disk, milliseconds of the processor; milliseconds that each thread ran
    and waited for a core."""
    text = fetch(port, "/metrics").decode()
    read = sum(float(x) for x in re.findall(r"^retro_expert_read_bytes_total\S* (\S+)$", text, re.M))
    fields = pathlib.Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()
    cpu = 1e3 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    threads = {}
    for task in pathlib.Path(f"/proc/{child.pid}/task").iterdir():
        ran, waited, _ = (task / "schedstat").read_text().split()
        threads[task.name] = int(ran) / 1e6, int(waited) / 1e6
    return [read, int(fields[9]), cpu], threads


def measure(child, port, tokens):
    wait_until_ready(child, port)
    complete(port, PROMPTS[0], 8)
    before, threads_before = count(child, port)
    begin = time.monotonic()
    answer = complete(port, PROMPTS[1], tokens)
    ms = 1e3 * (time.monotonic() - begin)
    after, threads = count(child, port)
    read, faults, cpu = ((b - a) / tokens for a, b in zip(before, after, strict=True))
    ran, waited = max((threads[i][0] - old[0], threads[i][1] - old[1]) for i, old in threads_before.items() if i in threads)
    return {"tok/s": 1e3 * tokens / ms, "tok/s without waiting": 1e3 * tokens / (ms - waited), "ran ms": ran / tokens,
            "slept ms": (ms - ran - waited) / tokens, "read MB": read / 1e6, "faults": faults, "CPU ms": cpu,
            "answer": hashlib.sha256(json.dumps(answer).encode()).hexdigest()[:8]}


def serve(program, args):
    with open(args.folder / "model.packed", "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    port = ports.find(1)
    settings = [word for option in (f"model.path={args.folder}", f"server.port={port}", *OPTIONS) for word in ("--set", option)]
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen([program, *settings], stdout=log, stderr=log)
        try:
            return measure(child, port, args.tokens)
        finally:
            child.terminate()
            child.wait(120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--memory", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    for _ in range(args.rounds):
        for program in args.programs:
            if args.memory > 0:
                with small_machine(args.memory << 20):
                    result = serve(program, args)
            else:
                result = serve(program, args)
            words = (f"{name} {value:.1f}" if isinstance(value, float) else f"{name} {value}" for name, value in result.items())
            print(f"{program}: {', '.join(words)}", flush=True)


if __name__ == "__main__":
    main()
