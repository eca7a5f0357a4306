#!/usr/bin/env python3
"""What a search over MCP takes in a collection of 10^5 chunks: p50 and p95 of the wall and of the server's CPU time.

    mcp_race.py --build build --embedder ~/.cache/retro-server/minilm --chunks 100000 --searches 200 --json out.jsonl
    mcp_race.py --build build --embedder ~/.cache/retro-server/minilm --layers 6 --folder /tmp/race --json out.jsonl

The embedder is the given one cut to its first layers, one unless --layers says how many, so that the collection is made
in minutes: its vectors have the same length, and a search looks at as many numbers. With all layers a query is embedded
as in use, and the collection takes as many times longer. With --folder the collection stays there, and the next run
takes it as it is. Documents are random words, about three a chunk, and the queries are such words too. The load of the
machine is written beside the figures: wall times mean little without it."""
import argparse
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import struct
import subprocess
import tempfile
import time

MODEL = pathlib.Path(__file__).resolve().parents[2] / "models/retro-docs"
MODERN = "2026-07-28"
META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}


def cut_embedder(source, folder, layers):
    """The folder with the first layers of the source's."""
    shutil.copytree(source, folder)
    config = json.loads((folder / "config.json").read_text())
    assert 1 <= layers <= config["num_hidden_layers"], f"the embedder has {config['num_hidden_layers']} layers"
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": layers}))
    data = (source / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, kept, out = json.loads(data[8:8 + size]), {}, b""
    for name, tensor in header.items():
        layer = re.search(r"layer\.(\d+)\.", name)
        if name == "__metadata__" or (layer and int(layer[1]) >= layers):
            continue
        start, end = (8 + size + at for at in tensor["data_offsets"])
        kept[name] = tensor | {"data_offsets": [len(out), len(out) + end - start]}
        out += data[start:end]
    text = json.dumps(kept).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + out)


def make_words(folder):
    words = [w for w in (folder / "vocab.txt").read_text().split() if w.isalpha() and len(w) > 3]
    return random.Random(7), words


def make_collection(build, folder, chunks):
    """Files of random words, of which three are about eight tokens of the model's; chunks of eight."""
    dice, words = make_words(folder / "embedder")
    (folder / "documents").mkdir()
    for first in range(0, chunks, 1000):
        lines = (" ".join(dice.choices(words, k=3)) for _ in range(min(1000, chunks - first)))
        (folder / "documents" / f"{first}.txt").write_text("\n".join(lines))
    subprocess.run([build / "retro-index", "build", "--set", f"retrieval.embedder={folder}/embedder",
                    "--set", f"model.path={MODEL}", "--chunks", "grid",
                    "--chunk-length", "8", "--out", folder / "collection", folder / "documents"], check=True, stdout=subprocess.DEVNULL)


class Server:
    def __init__(self, build, folder):
        config = {"model": {"path": str(MODEL)}, "server": {"port": 0},
                  "retrieval": {"collection": str(folder / "collection"), "embedder": str(folder / "embedder"), "mode": "prompt"}}
        (folder / "retro.json").write_text(json.dumps(config))
        self.log = folder / "log"
        with self.log.open("w") as out:
            self.process = subprocess.Popen([build / "retro-server", "--config", folder / "retro.json"], stdout=out, stderr=out)
        while not (found := re.search(r"listening on http://127\.0\.0\.1:(\d+)", self.log.read_text())):
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.1)
        self.connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=600)

    def cpu(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def count_chunks(self):
        self.connection.request("GET", "/v1/models")
        return json.loads(self.connection.getresponse().read())["data"][0]["meta"]["retro"]["chunks"]

    def search(self, query, **more):
        params = {"name": "search", "arguments": {"query": query, "k": 5, **more}, "_meta": META}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        self.connection.request("POST", "/mcp", body, {
            "Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": MODERN,
            "Mcp-Method": "tools/call", "Mcp-Name": "search"})
        reply = json.loads(self.connection.getresponse().read())
        assert len(reply["result"]["structuredContent"]["results"]) == 5, reply


def measure(server, queries, **more):
    walls, cpu = [], server.cpu()
    for query in queries:
        start = time.monotonic()
        server.search(query, **more)
        walls.append(1000 * (time.monotonic() - start))
    cuts = statistics.quantiles(walls, n=20)
    return {"p50_ms": round(statistics.median(walls), 1), "p95_ms": round(cuts[18], 1),
            "cpu_ms": round(1000 * (server.cpu() - cpu) / len(queries), 1), "load": os.getloadavg()[0]}


def measure_all(options, folder):
    """The rows of both ways to search, in a folder whose collection is made where it is missing."""
    if not (folder / "collection" / "CURRENT").exists():
        assert not any(folder.iterdir()), f"{folder} is not empty, and has no collection"
        cut_embedder(options.embedder, folder / "embedder", options.layers)
        make_collection(options.build.resolve(), folder, options.chunks)
    layers = json.loads((folder / "embedder" / "config.json").read_text())["num_hidden_layers"]
    assert layers == options.layers, f"the collection of {folder} was made with {layers} layers"
    server = Server(options.build.resolve(), folder)
    dice, words = make_words(folder / "embedder")
    queries = [" ".join(dice.choices(words, k=6)) for _ in range(options.searches)]
    for way in ({}, {"hybrid": True}):
        server.search(queries[0], **way)  # what is made once is made
        yield {"chunks": server.count_chunks(), "layers": layers, "searches": options.searches, **way, **measure(server, queries, **way)}
    server.process.terminate()
    server.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--embedder", type=pathlib.Path, required=True)
    parser.add_argument("--chunks", type=int, default=100000)
    parser.add_argument("--searches", type=int, default=200)
    parser.add_argument("--layers", type=int, default=1, help="of the embedder (1)")
    parser.add_argument("--folder", type=pathlib.Path, help="where the collection is made, and found by the next run")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if options.folder:
        options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        for row in measure_all(options, options.folder or pathlib.Path(name)):
            print(json.dumps(row), flush=True)
            if options.json:
                with options.json.open("a") as out:
                    print(json.dumps(row), file=out)


if __name__ == "__main__":
    main()
