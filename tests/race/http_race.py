#!/usr/bin/env python3
"""The whole server against llama-server over HTTP on the loopback: several streams at once, by turns.

    http_race.py --model WORK/m-int8-packed --peer-model m-q8_0.gguf --peer BIN/llama-server --threads 2 --json out.jsonl

Both servers run all the time; only one of them is asked at a time, and an idle one uses no CPU. One measurement: every
stream posts the same kind of request to /v1/completions at the same moment: `--prompt` random token ids (other ones in
each round, the same for both), `--tokens` tokens to write, greedy, end of text ignored, as a stream of events. Counts
are checked against what the servers report. Retrieval is off, because the peer has none. The peer's prompt cache is
off, because every prompt is new, and so are its samplers but the greedy one.

    total   written tokens of all streams / time from the first request to the last event
    writing the same after the last stream's first text, when no prompt is read any more
    first   milliseconds to a stream's first text, the median of the streams
"""
import argparse
import http.client
import json
import pathlib
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import race

VOCABULARY = 32000
ORDINARY = 300  # ids from here on are words in both tokenizers; below are bytes and special tokens


class Server:
    """A server process that answers GET /health with 200 when it is ready."""

    def __init__(self, command, port, extra, log):
        self.extra, self.log = extra, log
        with open(log, "w") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            self.port = port if port else self.port_from_log()
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def poll(self, what, found):
        """The first true result of found(), asked until a minute has passed."""
        for _ in range(600):
            result = found()
            if result:
                return result
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        sys.exit(f"{self.process.args[0]} {what}:\n{pathlib.Path(self.log).read_text()[-2000:]}")

    def port_from_log(self):
        pattern = re.compile(r"listening on http://127\.0\.0\.1:(\d+)")
        return int(self.poll("names no port", lambda: pattern.search(pathlib.Path(self.log).read_text()))[1])

    def healthy(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False

    def wait_until_ready(self):
        self.poll("does not become ready", self.healthy)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def start_ours(a, folder):
    config = {
        "model": {"path": str(pathlib.Path(a.model).resolve()), "threads": a.threads},
        "retrieval": {"enabled": False},
        "server": {"port": 0, "max_sequences": a.streams, "max_context": a.prompt + a.tokens + 8, "drafts": a.drafts},
    }
    path = folder / "retro.json"
    path.write_text(json.dumps(config))
    return Server([a.server, "--config", str(path)], 0, {}, folder / "ours.log")


def start_peer(a, folder):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    threads, context = str(a.threads), str(a.streams * (a.prompt + a.tokens + 64))
    command = [a.peer, "-m", a.peer_model, "--host", "127.0.0.1", "--port", str(port), "-t", threads, "-tb", threads,
               "-np", str(a.streams), "-c", context, "--no-cache-prompt", "-cram", "0", "-ctxcp", "0", *a.peer_args.split()]
    greedy = {"samplers": ["top_k"], "top_k": 1, "cache_prompt": False}
    return Server(command, port, greedy, folder / "peer.log")


def events(response):
    """The JSON of a stream's events."""
    for line in response:
        if line.startswith(b"data: {"):
            yield json.loads(line[6:])


class Stream(threading.Thread):
    """One request; connects first and posts when all streams may."""

    def __init__(self, server, body, start):
        super().__init__()
        self.server, self.body, self.start_line = server, body, start
        self.texts = []  # when text came
        self.last = self.error = self.usage = None

    def run(self):
        try:
            self.measure()
        except (OSError, ValueError, http.client.HTTPException, threading.BrokenBarrierError) as e:
            self.error = repr(e)
            self.start_line.abort()

    def measure(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=300)
        connection.connect()
        text = json.dumps(self.body)
        self.start_line.wait()
        connection.request("POST", "/v1/completions", text, {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise ValueError(response.read().decode())
        for event in events(response):
            if "error" in event:
                raise ValueError(event["error"])
            if any(c.get("text") for c in event["choices"]):
                self.texts.append(time.monotonic())
            self.usage = event.get("usage") or self.usage
        self.last = time.monotonic()
        connection.close()


def check_counts(stream, a):
    if stream.error:
        sys.exit(f"a stream failed: {stream.error}")
    counts = stream.usage["prompt_tokens"], stream.usage["completion_tokens"]
    if counts != (a.prompt, a.tokens):
        sys.exit(f"{stream.server.process.args[0]} counted {counts[0]} prompt tokens and wrote {counts[1]}, "
                 f"not {a.prompt} and {a.tokens}")


def prompts(a, seed):
    generator = random.Random(seed)
    return [[generator.randrange(ORDINARY, VOCABULARY) for _ in range(a.prompt)] for _ in range(a.streams)]


def summary(began, texts, end, tokens):
    """Rates of streams that wrote `tokens` each; texts: for each stream, when its texts came, one a token. In seconds.
    A server that sends all its text at once has no rate of writing."""
    firsts = [t[0] for t in texts]
    later = [t for stream in texts for t in stream if t > max(firsts)]
    rates = {"total": len(texts) * tokens / (end - began), "first": 1000 * statistics.median(f - began for f in firsts)}
    if later:
        rates["writing"] = len(later) / (max(later) - max(firsts))
    return rates


def measure(server, a, ids):
    began = []
    start = threading.Barrier(a.streams, action=lambda: began.append(time.monotonic()))
    body = {"max_tokens": a.tokens, "temperature": 0, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}, **server.extra}
    streams = [Stream(server, {"prompt": prompt, **body}, start) for prompt in ids]
    with race.Others([server.process.pid]) as others:
        for s in streams:
            s.start()
        for s in streams:
            s.join()
    for s in streams:
        check_counts(s, a)
    result = summary(began[0], [s.texts for s in streams], max(s.last for s in streams), a.tokens)
    return {**result, "others": others.cpus}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--server", default="build/retro-server")
    p.add_argument("--model", required=True, help="our model folder: random_model.py and retro-convert make one")
    p.add_argument("--peer", required=True, help="llama-server")
    p.add_argument("--peer-model", required=True, help="GGUF file of the same shape and bits")
    p.add_argument("--peer-args", default="", help="more arguments for llama-server")
    p.add_argument("--drafts", default="on", choices=["on", "off"], help="of our server: guessed tokens, which random models repeat")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--streams", type=int, default=8)
    p.add_argument("--prompt", type=int, default=64)
    p.add_argument("--tokens", type=int, default=64)
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


def run(a, servers):
    done = dict.fromkeys(servers, 0)

    def entry(name):
        def once():
            done[name] += 1
            shape = {"model": a.model, "peer_model": a.peer_model, "threads": a.threads, "streams": a.streams,
                     "prompt": a.prompt, "tokens": a.tokens}
            return {**shape, **measure(servers[name], a, prompts(a, done[name]))}
        return once

    few = argparse.Namespace(**{**vars(a), "tokens": 2})
    for server in servers.values():
        measure(server, few, prompts(a, 0))  # every page of the weights has been read once
    results = race.run_rounds("http", {name: entry(name) for name in servers}, a.rounds, a.json)
    title = (f"{a.model} against {a.peer_model}: {a.streams} streams of {a.prompt} + {a.tokens} tokens, "
             f"{a.threads} threads, retrieval off")
    race.print_results(title, results, {"total": "tok/s", "writing": "tok/s", "first": "ms"},
                       [("ours / peer, total", "total", "ours", ["peer"]),
                        ("ours / peer, writing", "writing", "ours", ["peer"])])


if __name__ == "__main__":
    main()
