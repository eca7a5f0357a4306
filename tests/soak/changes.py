#!/usr/bin/env python3
"""How long clients wait while documents come and the collection is compacted.

    changes.py [--build BUILD] [--deps DEPS] [--documents N] [--streams S] [--seconds T] [--quiet-seconds Q]

Starts a server with models/retro-docs over the manual, S clients that stream answers with retrieval, and one that
searches. It watches them for T seconds, adds N short documents in lists of a hundred, waits until the server has compacted
the collection, and watches for T seconds again. Prints percentiles of the time to the first token, between tokens, and of
a search, in milliseconds, for each phase. The adding ends after Q seconds, however many have come by then.
"""
import argparse
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUESTIONS = ["The server's memory budget", "Compaction writes a new", "How are chunks aligned", "A key may be limited to"]


def call(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    text = reply.read()
    assert reply.status == 200, text
    connection.close()
    return json.loads(text)


class Clients:
    def __init__(self, port):
        self.port, self.stopped, self.samples, self.lock, self.phase = port, False, {}, threading.Lock(), "before"

    def note(self, what, seconds):
        with self.lock:
            self.samples.setdefault((what, self.phase), []).append(1000 * seconds)

    def stream(self, number):
        while not self.stopped:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
            body = {"prompt": QUESTIONS[number % len(QUESTIONS)], "max_tokens": 24, "stream": True, "ignore_eos": True}
            last, first = time.monotonic(), True
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            assert reply.status == 200, reply.read()
            while line := reply.readline():
                if not line.startswith(b"data: {"):
                    continue
                now = time.monotonic()
                self.note("first token" if first else "next token", now - last)
                last, first = now, False
            connection.close()

    def search(self):
        while not self.stopped:
            begin = time.monotonic()
            call(self.port, "POST", "/v1/retrieval/search", {"query": "how are chunks aligned", "k": 2})
            self.note("search", time.monotonic() - begin)


def add(port, n, limit):
    begin = time.monotonic()
    for at in range(0, n, 100):
        documents = [{"id": f"note {i}", "text": f"Note {i}: the square of {i} is {i * i}."} for i in range(at, min(at + 100, n))]
        said = call(port, "POST", "/v1/documents", {"documents": documents})
        assert {d["effect"] for d in said["data"]} == {"added"}
        if time.monotonic() - begin > limit:
            return at + 100
    return n


def start(arguments, folder):
    build = pathlib.Path(arguments.build)
    config = folder / "retro.json"
    config.write_text(json.dumps({
        "model": {"path": str(ROOT / "models/retro-docs")},
        "server": {"port": 0, "max_sequences": arguments.streams, "max_connections": 4 * arguments.streams},
        "retrieval": {"collection": str(folder / "collection"), "embedder": str(pathlib.Path(arguments.deps) / "minilm"),
                      "compact_after": 0}}))
    subprocess.run([build / "retro-index", "build", "--out", folder / "collection", "--config", config, ROOT / "docs"],
                   check=True, capture_output=True)
    log = open(folder / "log", "w+")
    server = subprocess.Popen([build / "retro-server", "--config", config], stdout=log, stderr=log)
    while not (found := re.search(r"listening on https?://127\.0\.0\.1:(\d+)", (folder / "log").read_text())):
        assert server.poll() is None, (folder / "log").read_text()
        time.sleep(0.05)
    return server, int(found[1])


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=ROOT / "build")
    p.add_argument("--deps", default=pathlib.Path.home() / ".cache/retro-server")
    p.add_argument("--documents", type=int, default=10000)
    p.add_argument("--streams", type=int, default=32)
    p.add_argument("--seconds", type=float, default=20)
    p.add_argument("--quiet-seconds", type=float, default=1e9)
    arguments = p.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="retro-changes-"))
    server, port = start(arguments, folder)
    clients = Clients(port)
    threads = [threading.Thread(target=clients.stream, args=(i,)) for i in range(arguments.streams)]
    threads.append(threading.Thread(target=clients.search))
    for t in threads:
        t.start()
    time.sleep(arguments.seconds)

    clients.phase, begin = "adding", time.monotonic()
    n = add(port, arguments.documents, arguments.quiet_seconds)
    adding = time.monotonic() - begin
    clients.phase, begin = "compacting", time.monotonic()
    subprocess.run([pathlib.Path(arguments.build) / "retro-index", "compact", folder / "collection"], check=True, capture_output=True)
    while call(port, "GET", "/v1/documents?limit=1")["generation"] < 2:
        time.sleep(0.02)
    compacting = time.monotonic() - begin
    clients.phase = "after"
    time.sleep(arguments.seconds)
    clients.stopped = True
    for t in threads:
        t.join()
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0

    print(f"{n} documents in {adding:.1f} s, compacted in {compacting:.1f} s; {arguments.streams} streams, {os.cpu_count()} cores")
    print("| milliseconds | phase | samples | p50 | p95 | p99 | longest |\n|---|---|--:|--:|--:|--:|--:|")
    for what in ("first token", "next token", "search"):
        for phase in ("before", "adding", "compacting", "after"):
            values = clients.samples.get((what, phase), [])
            if values:
                row = " | ".join(f"{x:.1f}" for x in (*(percentile(values, s) for s in (0.5, 0.95, 0.99)), max(values)))
                print(f"| {what} | {phase} | {len(values)} | {row} |")


if __name__ == "__main__":
    main()
