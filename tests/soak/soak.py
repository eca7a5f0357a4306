#!/usr/bin/env python3
"""Many requests of every kind at a server, a third of whose clients leave: nothing may grow, be lost or be wrong.

    soak.py --build BUILD [--requests N] [--seconds S] [--clients C] [--model FOLDER] [--out FILE.json]

Starts a server with keys and a random model of its own (or --model), and asks until N requests or S seconds are over.
Clients leave at any moment of a request. Every greedy answer that arrives is compared with the answer that the same
request had alone, on an idle server. The server's memory is read from /proc after each fiftieth of the requests; its
slope by least squares, in bytes a request, leaves out the first third. The last line is "N passed, N failed".
"""
import argparse
import collections
import json
import os
import pathlib
import random
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "http"))
from chat_model import TEMPLATE, make_tokens, write_safetensors, write_tokenizer  # noqa: E402

LAYERS, D, HEADS, FFN, CONTEXT = 2, 64, 4, 128, 256
WORDS = "the system call creates a new process and returns its number to the caller or an error".split()
SLOPE_BYTES = 1  # a request
# Memory moves by whole pages, and the heap finds its form in the first hundred thousand requests: a run that does not
# leave these out cannot tell a slope, and only has a bound.
SHORT_REQUESTS, SHORT_BYTES = 300000, 2 << 20


def make_model(folder):
    """A llama of random weights: what it writes depends on all that it read."""
    names, _ = make_tokens()
    random_state = np.random.default_rng(7)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": D, "intermediate_size": FFN,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": HEADS // 2,
        "vocab_size": len(names), "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "float32",
        "eos_token_id": names.index("<|endoftext|>")}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    write_tokenizer(folder, names)

    def matrix(rows, columns):
        return random_state.normal(0, 1 / np.sqrt(columns), (rows, columns))

    kv = D // 2
    tensors = {"model.embed_tokens.weight": random_state.normal(0, 1, (len(names), D)),
               "model.norm.weight": np.ones(D), "lm_head.weight": 4 * matrix(len(names), D)}
    for i in range(LAYERS):
        shapes = {"self_attn.q_proj": (D, D), "self_attn.k_proj": (kv, D), "self_attn.v_proj": (kv, D),
                  "self_attn.o_proj": (D, D), "mlp.gate_proj": (FFN, D), "mlp.up_proj": (FFN, D), "mlp.down_proj": (D, FFN)}
        layer = {name: 2 * matrix(*shape) for name, shape in shapes.items()}
        layer |= {"input_layernorm": np.ones(D), "post_attention_layernorm": np.ones(D)}
        tensors |= {f"model.layers.{i}.{name}.weight": values for name, values in layer.items()}
    write_safetensors(folder / "model.safetensors", tensors)


class Server:
    def __init__(self, arguments, folder):
        self.log = folder / "server.log"
        self.secrets = []
        lines = []
        for name in ("one", "two", "three"):
            made = subprocess.run([arguments.build / "retro-server", "--new-key", name], capture_output=True, text=True, check=True)
            self.secrets.append(re.search("retro-[0-9a-f]{64}", made.stderr)[0])
            lines.append(made.stdout)
        (folder / "keys").write_text("".join(lines))
        settings = {"model.path": arguments.model, "server.port": 0, "server.keys_file": folder / "keys", "server.operations": "open",
                    "model.threads": 1,
                    "server.max_connections": 64, "server.max_sequences": 8, "log.level": "warn", "server.max_queue": 32,
                    "server.connection_timeout": 3600, "server.head_timeout": 3600,
                    **dict(s.split("=", 1) for s in arguments.set)}
        # The line with the port is of level info: the port is found among the process's sockets instead.
        with socket.create_server(("127.0.0.1", 0)) as s:
            self.port = s.getsockname()[1]
        settings["server.port"] = self.port
        command = [arguments.build / "retro-server", *(a for k, v in settings.items() for a in ("--set", f"{k}={v}"))]
        with self.log.open("w") as out:
            self.process = subprocess.Popen([str(a) for a in command], stdout=out, stderr=out)
        deadline = time.monotonic() + 120
        while True:
            try:
                if self.ask(head("GET", "/readyz"))[0] == 200:
                    return
            except OSError:
                pass
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def ask(self, request):
        """The status and the body of one request on a connection of its own."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=120) as s:
            s.sendall(request)
            return parse(b"".join(iter(lambda: s.recv(65536), b"")))

    def resident(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        return 1024 * int(re.search(r"^Pss_Anon:\s+(\d+)", text, re.M)[1])

    def files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def head(method, path, body=b"", key=""):
    return (f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


def parse(data):
    """(status, body); status 0 where the answer is not whole."""
    before, blank, body = data.partition(b"\r\n\r\n")
    if not blank:
        return 0, b""
    status, headers = int(before.split(b" ", 2)[1]), before.lower()
    if b"transfer-encoding: chunked" in headers:
        parts = []
        while True:
            size, end, body = body.partition(b"\r\n")
            n = int(size, 16) if end else 0
            if not end or len(body) < n + 2:
                return 0, b""
            if n == 0:
                return status, b"".join(parts)
            parts.append(body[:n])
            body = body[n + 2 :]
    length = re.search(rb"content-length: (\d+)", headers)
    return (status, body) if length is None or len(body) == int(length[1]) else (0, b"")


def words(rng, n):
    return " ".join(rng.choice(WORDS) for _ in range(n))


def make_cases(seed, n):
    """Requests whose answers do not depend on anything else."""
    rng, cases = random.Random(seed), []
    for i in range(n):
        prompt, greedy = words(rng, rng.randint(1, 12)), {"temperature": 0, "max_tokens": rng.randint(1, 12), "ignore_eos": True}
        kind = i % 10
        if kind < 3:
            path, body = "/v1/completions", {"prompt": prompt, **greedy, "stream": kind == 0}
        elif kind == 3:
            path, body = "/v1/completions", {"prompt": [prompt, words(rng, 3)], **greedy, "logprobs": 2, "echo": True}
        elif kind == 4:
            path, body = "/v1/completions", {"prompt": prompt, "seed": i, "n": 2, "max_tokens": 6, "presence_penalty": 1}
        elif kind == 5:
            path, body = "/v1/chat/completions", {"messages": [{"role": "user", "content": prompt}], **greedy, "stream": i % 20 > 9}
        elif kind == 6:
            path, body = "/tokenize", {"prompt": prompt}
        elif kind == 7:
            path, body = "/v1/completions", {"prompt": prompt, "max_tokens": rng.choice([-1, 10**9, "x"])}
        elif kind == 8:
            path, body = rng.choice(["/v1/nothing", "/detokenize", "/v1/embeddings"]), {"tokens": [1, 2, 3], "prompt": prompt}
        else:
            path, body = "/v1/completions", {"prompt": words(rng, 30), **greedy, "stop": ["e", "zz"], "retrieval": {"enabled": False}}
        cases.append((path, json.dumps(body).encode()))
    return cases


def essence(status, body):
    """What of an answer does not change: no ids, no times, nothing of what was computed before."""
    return status, re.sub(rb'"(id|created|cached_tokens)":("[^"]*"|\d+)', b"", body)


def merge(status, body):
    """A stream's text, however it was cut into events."""
    if status != 200 or not body.startswith(b"data: "):
        return essence(status, body)
    texts, ends = collections.defaultdict(str), []
    for event in body.split(b"\n\n"):
        if event in (b"", b"data: [DONE]"):
            ends.append(event)
            continue
        for choice in json.loads(event[6:]).get("choices", ()):
            texts[choice["index"]] += choice["text"] if "text" in choice else choice["delta"].get("content") or ""
    return status, dict(texts), ends[-2:]


class Client:
    """One connection after another, without a thread of its own."""

    def __init__(self, run, number):
        self.run, self.rng = run, random.Random(number)
        self.socket = None

    def begin(self):
        run, rng = self.run, self.rng
        self.socket = None
        if run.asked >= min(run.limit, run.pause_at) or time.monotonic() > run.end:
            return
        run.asked += 1
        self.case = rng.randrange(len(run.cases))
        path, body = run.cases[self.case]
        data = head("POST", path, body, rng.choice(run.server.secrets))
        self.leaves = rng.random() < 0.3
        self.left_at = rng.choice([0, 0, 1, rng.randint(1, 400)]) if self.leaves else None
        sent = rng.randint(1, len(data)) if self.leaves and rng.random() < 0.5 else len(data)
        self.data = b""
        self.socket = socket.create_connection(("127.0.0.1", run.server.port), timeout=120)
        self.socket.sendall(data[:sent])
        if self.leaves and (self.left_at == 0 or sent < len(data)):
            if rng.random() < 0.3:
                time.sleep(0.001)
            self.finish(left=True)
            return
        run.selector.register(self.socket, selectors.EVENT_READ, self)

    def finish(self, left):
        if not left:
            self.run.check(self.case, self.data)
        else:
            self.run.left += 1
        self.socket.close()
        self.run.done += 1
        self.begin_later()

    def begin_later(self):
        self.run.ready.append(self)

    def read(self):
        try:
            piece = self.socket.recv(65536)
        except ConnectionResetError:
            piece = b""
        self.data += piece
        if not piece or (self.leaves and len(self.data) >= self.left_at):
            self.run.selector.unregister(self.socket)
            self.finish(left=self.leaves and bool(piece))


class Run:
    def __init__(self, server, arguments):
        self.server, self.limit = server, arguments.requests
        self.cases = make_cases(arguments.seed, 200)
        self.alone = [merge(*server.ask(head("POST", *case, server.secrets[0]))) for case in self.cases]
        again = [merge(*server.ask(head("POST", *case, server.secrets[0]))) for case in self.cases]
        assert again == self.alone, "an answer on an idle server is not the same twice"
        self.end = time.monotonic() + arguments.seconds
        self.selector, self.ready = selectors.DefaultSelector(), collections.deque()
        self.asked = self.done = self.left = self.whole = 0
        self.statuses, self.wrong, self.samples = collections.Counter(), [], []

    def check(self, case, data):
        answer = merge(*parse(data))
        self.statuses[answer[0]] += 1
        if answer[0] in (429, 503) and self.alone[case][0] not in (429, 503):
            return
        self.whole += 1
        if answer != self.alone[case]:
            self.wrong.append((self.cases[case], self.alone[case], answer))

    def round(self, clients, until):
        """All clients ask until so many requests are done, and come to rest."""
        self.pause_at = until
        for client in clients:
            self.ready.append(client)
        while True:
            while self.ready:
                self.ready.popleft().begin()
            if not self.selector.get_map():
                return
            for key, _ in self.selector.select():
                key.data.read()

    def go(self, clients, every):
        """Memory is read while nobody asks: what requests hold for a while is no part of it."""
        clients = [Client(self, i) for i in range(clients)]
        while self.asked < self.limit and time.monotonic() < self.end:
            self.round(clients, self.asked + every)
            wait_idle(self.server)
            self.samples.append((self.done, self.server.resident()))


def slope(samples):
    """Bytes a request by least squares over all but the first third, and the standard error of that."""
    late = samples[len(samples) // 3 :]
    if len(late) < 8:
        return 0.0, 0.0
    x, y = np.array([s[0] for s in late], float), np.array([s[1] for s in late], float)
    steep, offset = np.polyfit(x, y, 1)
    rest = y - steep * x - offset
    return float(steep), float(np.sqrt(rest @ rest / (len(x) - 2) / ((x - x.mean()) ** 2).sum()))


def wait_idle(server):
    deadline = time.monotonic() + 60
    while True:
        health = json.loads(server.ask(head("GET", "/health"))[1])
        if health["running"] + health["waiting"] + health["parked"] == 0:
            return
        assert time.monotonic() < deadline, health
        time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--requests", type=int, default=300000)
    parser.add_argument("--seconds", type=float, default=86400)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        if arguments.model is None:
            arguments.model = folder / "model"
            make_model(arguments.model)
        server = Server(arguments, folder)
        run = Run(server, arguments)
        wait_idle(server)
        files, begun = server.files(), time.monotonic()
        run.go(arguments.clients, max(50, arguments.requests // 50))
        seconds = time.monotonic() - begun
        wait_idle(server)
        deadline = time.monotonic() + 30
        while server.files() > files and time.monotonic() < deadline:
            time.sleep(0.1)
        lost = server.files() - files
        server.process.send_signal(signal.SIGTERM)
        status = server.process.wait(60)
        log = server.log.read_text()

    late = [s[1] for s in run.samples[len(run.samples) // 3 :]]
    (steep, doubt), growth = slope(run.samples), max(late) - late[0]
    flat = steep < SLOPE_BYTES if run.done >= SHORT_REQUESTS else growth < SHORT_BYTES
    result = {"requests": run.done, "seconds": round(seconds, 1), "left": run.left, "whole_answers": run.whole,
              "wrong_answers": len(run.wrong), "statuses": dict(sorted(run.statuses.items())),
              "bytes_at_start": run.samples[0][1], "bytes_behind_a_third": late[0], "bytes_at_end": late[-1],
              "slope_bytes_a_request": round(steep, 3), "slope_standard_error": round(doubt, 3), "descriptors_before": files, "descriptors_lost": lost,
              "exit_status": status}
    print(json.dumps(result, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps({**result, "samples": run.samples}))
    checks = {"every whole answer is the one that the request has alone": not run.wrong and run.whole > 0,
              "memory is flat": flat, "no descriptor is lost": lost <= 0, "the server ends in order": status == 0,
              "a third of the clients left": 0.2 < run.left / max(1, run.done) < 0.4,
              "no key is in the log": not any(secret in log for secret in server.secrets)}
    for words_, good in checks.items():
        if not good:
            print("FAILED:", words_)
    for request, alone, answer in run.wrong[:3]:
        print("wrong:", request, alone, answer, sep="\n  ")
    if status != 0:
        print(log[-3000:])
    print(f"{sum(checks.values())} passed, {len(checks) - sum(checks.values())} failed")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
