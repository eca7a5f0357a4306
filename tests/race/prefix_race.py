#!/usr/bin/env python3
"""Prompts that begin alike, against llama-server with its own prompt cache, over HTTP on the loopback, by turns.

    prefix_race.py --model small-q8_0.gguf --peer PEERS/bin/llama-server --threads 2 --json out.jsonl

Both servers run all the time on the same file (random_gguf.py); only one of them is asked at a time. Prompts are token
ids, other ones in each round; answers are greedy, their end is ignored, and they come as streams. Each server's cache
is as it comes, with as many sequences.

    chat    one conversation: `--system` tokens, then ten turns of `--user` tokens and `--answer` tokens that the server
            writes, each turn with all that was said before
    shared  `--requests` requests at once, all with the same new `--system` tokens and `--user` of their own

    first   milliseconds to the first token: of chat the median of the turns behind the first, of shared of all requests
    total   written tokens / time from the first request to the last event
"""
import argparse
import http.client
import json
import pathlib
import random
import socket
import statistics
import sys
import tempfile
import threading
import time

import race
from http_race import ORDINARY, VOCABULARY, Server, events

TURNS = 10


def start_ours(a, folder):
    config = {"model": {"path": str(pathlib.Path(a.model).resolve()), "threads": a.threads},
              "server": {"port": 0, "max_sequences": a.sequences, "max_queue": a.requests, "max_context": a.context}}
    path = folder / "retro.json"
    path.write_text(json.dumps(config))
    return Server([a.server, "--config", str(path)], 0, {}, folder / "ours.log")


def start_peer(a, folder):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    threads = str(a.threads)
    command = [a.peer, "-m", a.model, "--host", "127.0.0.1", "--port", str(port), "-t", threads, "-tb", threads,
               "-np", str(a.sequences), "-c", str(a.sequences * a.context), *a.peer_args.split()]
    return Server(command, port, {"peer": True}, folder / "peer.log")


def request_of(server, ids, tokens):
    """Path and body: the peer tells ids at its own path only."""
    if server.extra:
        return "/completion", {"prompt": ids, "n_predict": tokens, "samplers": ["top_k"], "top_k": 1, "ignore_eos": True,
                               "stream": True, "return_tokens": True, "cache_prompt": True}
    return "/v1/completions", {"prompt": [ids], "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
                               "return_token_ids": True}


def new_ids(event):
    return event["tokens"] if "tokens" in event else [t for c in event["choices"] for t in c.get("token_ids", [])]


class Request(threading.Thread):
    """One request: `written` are the answer's ids, `first` and `last` when its first ids and its last event came."""

    def __init__(self, server, ids, tokens):
        super().__init__()
        self.server, self.ids, self.tokens = server, ids, tokens
        self.written, self.first, self.error = [], None, None

    def run(self):
        try:
            self.ask()
        except (OSError, ValueError, KeyError, http.client.HTTPException) as e:
            self.error = repr(e)

    def ask(self):
        path, body = request_of(self.server, self.ids, self.tokens)
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=300)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise ValueError(response.read().decode())
        for event in events(response):
            ids = new_ids(event)
            if ids and self.first is None:
                self.first = time.monotonic()
            self.written += ids
        self.last = time.monotonic()
        connection.close()

    def check(self):
        if self.error or len(self.written) != self.tokens:
            sys.exit(f"{self.server.process.args[0]}: {self.error}, {len(self.written)} of {self.tokens} tokens")


def run_chat(server, a, draw):
    ids, firsts, began = draw(a.system), [], time.monotonic()
    for _ in range(TURNS):
        request = Request(server, ids + draw(a.user), a.answer)
        asked = time.monotonic()
        request.run()
        request.check()
        firsts.append(request.first - asked)
        ids = request.ids + request.written
    return {"first": 1000 * statistics.median(firsts[1:]), "total": TURNS * a.answer / (time.monotonic() - began)}


def run_shared(server, a, draw):
    system = draw(a.system)
    requests = [Request(server, system + draw(a.user), a.answer) for _ in range(a.requests)]
    began = time.monotonic()
    for r in requests:
        r.start()
    for r in requests:
        r.join()
        r.check()
    return {"first": 1000 * statistics.median(r.first - began for r in requests),
            "total": a.requests * a.answer / (max(r.last for r in requests) - began)}


def measure(server, a, seed):
    generator = random.Random(seed)

    def draw(n):
        return [generator.randrange(ORDINARY, VOCABULARY) for _ in range(n)]

    with race.Others([server.process.pid]) as others:
        result = (run_chat if a.test == "chat" else run_shared)(server, a, draw)
    return {**result, "others": others.cpus}


def run(a, servers):
    done = dict.fromkeys(servers, 0)

    def entry(name):
        def once():
            done[name] += 1
            return measure(servers[name], a, done[name])
        return once

    for server in servers.values():
        measure(server, argparse.Namespace(**{**vars(a), "requests": 2, "answer": 2}), 0)  # the weights have been read
    results = race.run_rounds("prefix " + a.test, {name: entry(name) for name in servers}, a.rounds, a.json)
    what = f"{TURNS} turns" if a.test == "chat" else f"{a.requests} requests"
    title = f"{what}, {a.system} tokens first, {a.user} + {a.answer} each, {a.threads} threads, {a.sequences} sequences"
    race.print_results(title, results, {"total": "tok/s", "first": "ms"},
                       [("ours / peer, total", "total", "ours", ["peer"]),
                        ("ours / peer, first", "first", "ours", ["peer"])])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("test", choices=["chat", "shared"])
    p.add_argument("--server", default="build/retro-server")
    p.add_argument("--model", required=True)
    p.add_argument("--peer", required=True, help="llama-server")
    p.add_argument("--peer-args", default="", help="more arguments for llama-server")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--sequences", type=int, default=8, help="of both servers")
    p.add_argument("--context", type=int, default=2048, help="tokens of a sequence")
    p.add_argument("--requests", type=int, default=64)
    p.add_argument("--system", type=int, default=1000)
    p.add_argument("--user", type=int, default=40)
    p.add_argument("--answer", type=int, default=32)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--json", help="append every result to this file")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        servers = {}
        try:
            servers["ours"] = start_ours(a, pathlib.Path(folder))
            servers["peer"] = start_peer(a, pathlib.Path(folder))
            run(a, servers)
        finally:
            for server in servers.values():
                server.stop()


if __name__ == "__main__":
    main()
