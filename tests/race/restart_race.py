#!/usr/bin/env python3
"""The first token of a prompt in a process that has just started: with the rows of server.cache_folder against without.

    restart_race.py --model FOLDER --threads 2 --rounds 5 --json out.jsonl

A first process reads the prompt and leaves its rows in the folder. Each round then starts a process with the folder and
one without, in turns; each reads another short prompt, so that all weights have been touched, and then the prompt.
Also tells the bytes that the folder has for 1 000 tokens."""
import argparse
import http.client
import json
import pathlib
import random
import statistics
import tempfile
import time

from http_race import Server


def ids(n, seed):
    generator = random.Random(seed)
    return [generator.randrange(300, 8000) for _ in range(n)]


def start(a, folder, *sets):
    config = {"model": {"path": str(pathlib.Path(a.model).resolve()), "threads": a.threads, "dtype": a.dtype},
              "server": {"port": 0, "max_sequences": 2, "max_context": a.prompt + 128}}
    path = folder / "retro.json"
    path.write_text(json.dumps(config))
    return Server([a.server, "--config", str(path), *(word for one in sets for word in ("--set", one))], 0, {}, folder / "server.log")


def first_token(server, prompt):
    """Milliseconds of a request of one token, and how many tokens were not computed."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    body = json.dumps({"prompt": [prompt], "max_tokens": 1, "temperature": 0})
    begun = time.monotonic()
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    reply = json.loads(connection.getresponse().read())
    return 1e3 * (time.monotonic() - begun), reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True)
    p.add_argument("--server", default="build/retro-server")
    p.add_argument("--dtype", default="auto")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--prompt", type=int, default=1000)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--json")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        rows = f"server.cache_folder={folder / 'rows'}"
        prompt, other = ids(a.prompt, 1), ids(40, 2)
        server = start(a, folder, rows)
        first_token(server, prompt)
        server.stop()
        disk = sum(f.stat().st_size for f in (folder / "rows").glob("*.rows"))
        figures = {"files": [], "computed": []}
        for _ in range(a.rounds):
            for name, sets in (("files", [rows]), ("computed", [])):
                server = start(a, folder, *sets)
                first_token(server, other)
                milliseconds, cached = first_token(server, prompt)
                server.stop()
                figures[name].append({"ms": milliseconds, "cached": cached})
    medians = {name: statistics.median(one["ms"] for one in all_) for name, all_ in figures.items()}
    result = {"model": a.model, "dtype": a.dtype, "prompt": a.prompt, "figures": figures, "medians": medians,
              "ratio": medians["files"] / medians["computed"], "mb_for_1000_tokens": 1e-6 * disk * 1000 / a.prompt}
    print(json.dumps(result))
    if a.json:
        with open(a.json, "a") as out:
            out.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
