#!/usr/bin/env python3
"""The first token over documents, by turns: what conversations keep (docs/prefixes.md), and orders of passages.

    conversation_race.py turns --model small-q8_0.gguf --peer PEERS/bin/llama-server --json out.jsonl
    conversation_race.py questions --model small-q8_0.gguf

random_gguf.py makes the file. 500 documents of `--words` made-up words are a collection; the
file's tokenizer reads most of a word as bytes. Servers are
started anew for each measurement, with caches as they come, so that none has seen a prompt; one of them runs at a time. A
request writes one token: its time is that of the first token.

    turns      a conversation of `--turns` turns, each about another document, with answers of the client's own words.
               keep and latest are retrieval.conversation of our server; the peer gets the prompts of keep, with the passages
               in the messages
    questions  `--questions` single questions, each about `--subjects` documents that Zipf's law draws. stable and relevance
               are retrieval.order of our server; the peer gets the prompts of relevance

    first   milliseconds to the first token: the median, of turns without the first
    last    of the last turn
    found   share of the prompts' tokens that were not computed
    rows    tokens that were computed, of a request in the mean"""
import argparse
import http.client
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import prefix_race
import race

DOCUMENTS = 500
ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPS = pathlib.Path(os.environ.get("RETRO_DEPS", pathlib.Path.home() / ".cache/retro-server"))
ENTRIES = {"turns": {"keep": {"conversation": "keep"}, "latest": {"conversation": "latest"}},
           "questions": {"stable": {"order": "stable"}, "relevance": {"order": "relevance"}}}


def subject(i):
    """Words that one document has."""
    return f"w{2000 + 3 * i} w{2001 + 3 * i} w{2002 + 3 * i}"


def make_collection(a, folder):
    draw = random.Random(1)
    (folder / "pages").mkdir()
    for i in range(DOCUMENTS):
        words = [subject(i) if j % 12 == 0 else f"w{draw.randrange(5000, 30000)}" for j in range(a.words)]
        (folder / f"pages/{i}.txt").write_text(" ".join(words) + ".\n")
    config = {"model": {"path": str(pathlib.Path(a.model).resolve()), "threads": a.threads},
              "retrieval": {"collection": str(folder / "collection"), "embedder": str(DEPS / "minilm"), "k": a.k,
                            "order_distance": a.distance},
              "server": {"port": 0, "max_sequences": a.sequences, "max_context": a.context}}
    (folder / "retro.json").write_text(json.dumps(config))
    done = subprocess.run([a.index, "build", "--out", str(folder / "collection"), "--set", f"retrieval.embedder={DEPS / 'minilm'}",
                           "--set", f"model.path={ROOT / 'models/retro-docs'}", str(folder / "pages")], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)


def ask(server, messages, retrieval=None):
    """Seconds, and the reply."""
    body = {"messages": messages, "max_tokens": 1, "temperature": 0, "cache_prompt": True}
    if retrieval:
        body["retrieval"] = retrieval
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
    began = time.monotonic()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    reply = response.read()
    seconds = time.monotonic() - began
    connection.close()
    if response.status != 200:
        sys.exit(f"{server.process.args[0]}: {reply.decode()[:500]}")
    return seconds, json.loads(reply)


def shown(reply):
    """What our server put before the question."""
    neighbors = reply["retrieval"][0]["neighbors"]
    return "".join(f"[{n['number']}] {n['title']}: see above\n\n" if n.get("again") else f"[{n['number']}] {n['title']}\n{n['text']}\n\n"
                   for n in neighbors)


def counted(reply):
    usage = reply["usage"]
    return usage["prompt_tokens"], (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)


def conversations(a, seed):
    """Requests, in order: their messages, and where the next one's passages stand."""
    draw = random.Random(seed)
    messages = []
    for i in draw.sample(range(DOCUMENTS), a.turns):
        messages.append({"role": "user", "content": f"Tell of {subject(i)}"})
        yield list(messages)
        messages.append({"role": "assistant", "content": " ".join(f"w{draw.randrange(5000, 30000)}" for _ in range(a.answer))})


def questions(a, seed):
    draw = random.Random(seed)
    weights = [1 / (i + 1) for i in range(DOCUMENTS)]
    for _ in range(a.questions):
        picked = {i: None for i in draw.choices(range(DOCUMENTS), weights, k=a.subjects)}
        yield [{"role": "user", "content": " and ".join(subject(i) for i in picked) + f" w{draw.randrange(5000, 30000)}?"}]


def record(a, server, retrieval, seed):
    """Times of our server, tokens, and the prompts as another server is sent them."""
    times, tokens, found, prompts, put_in = [], 0, 0, [], []
    for messages in (conversations if a.test == "turns" else questions)(a, seed):
        seconds, reply = ask(server, messages, retrieval)
        put_in = [*put_in, shown(reply)] if a.test == "turns" else [shown(reply)]
        filled, users = [], iter(put_in)
        for message in messages:
            before = next(users) if message["role"] == "user" else ""
            filled.append({**message, "content": before + message["content"]})
        prompts.append(filled)
        times.append(seconds)
        tokens, found = tokens + counted(reply)[0], found + counted(reply)[1]
    return times, tokens, found, prompts


def replay(server, prompts):
    times, tokens, found = [], 0, 0
    for messages in prompts:
        seconds, reply = ask(server, messages)
        times.append(seconds)
        tokens, found = tokens + counted(reply)[0], found + counted(reply)[1]
    return times, tokens, found


def start_ours(a, folder):
    return prefix_race.Server([a.server, "--config", str(folder / "retro.json")], 0, {}, folder / "ours.log")


def summary(a, times, tokens, found):
    own = times[1:] if a.test == "turns" else times
    return {"first": 1000 * statistics.median(own), "last": 1000 * times[-1], "found": found / tokens,
            "rows": (tokens - found) / len(times)}


def measure(a, folder, name, seed, prompts):
    """One entry of a round. `prompts` is filled by the entry whose prompts the peer gets."""
    server = prefix_race.start_peer(a, folder) if name == "peer" else start_ours(a, folder)
    try:
        ask(server, [{"role": "user", "content": "w1"}], None if name == "peer" else {"enabled": False})
        with race.Others([server.process.pid]) as others:
            if name == "peer":
                result = replay(server, prompts[seed])
            else:
                *result, prompts[seed, name] = record(a, server, {"enabled": True, "mode": "prompt", **ENTRIES[a.test][name]}, seed)
    finally:
        server.stop()
    return {**summary(a, *result), "others": others.cpus}


def run(a, folder):
    done, prompts = {}, {}
    base = "keep" if a.test == "turns" else "relevance"

    def entry(name):
        def once():
            done[name] = done.get(name, 0) + 1
            seed = done[name]
            if name == "peer" and seed not in prompts:  # the round may begin with the peer
                if (seed, base) not in prompts:
                    measure(a, folder, base, seed, prompts)
                prompts[seed] = prompts[seed, base]
            return measure(a, folder, name, seed, prompts)
        return once

    names = [*ENTRIES[a.test], *(["peer"] if a.peer else [])]
    results = race.run_rounds(f"conversation {a.test}", {name: entry(name) for name in names}, a.rounds, a.json)
    first, second = ENTRIES[a.test]
    ratios = [(f"{first} / {second}, first", "first", first, [second])]
    ratios.append((f"{first} / {second}, rows", "rows", first, [second]))
    if a.test == "turns":
        ratios.append((f"{first} / {second}, last turn", "last", first, [second]))
    if a.peer:
        ratios.append((f"{first} / peer, first", "first", first, ["peer"]))
    what = f"{a.turns} turns" if a.test == "turns" else f"{a.questions} questions"
    race.print_results(f"{what}, {a.k} passages, {a.threads} threads", results, {"first": "ms", "last": "ms", "found": "of 1", "rows": "tokens"}, ratios)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("test", choices=list(ENTRIES))
    p.add_argument("--server", default="build/retro-server")
    p.add_argument("--index", default="build/retro-index")
    p.add_argument("--model", required=True)
    p.add_argument("--peer", help="llama-server")
    p.add_argument("--peer-args", default="", help="more arguments for llama-server")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--sequences", type=int, default=4, help="of both servers")
    p.add_argument("--context", type=int, default=4096, help="tokens of a sequence")
    p.add_argument("--turns", type=int, default=10)
    p.add_argument("--questions", type=int, default=200)
    p.add_argument("--subjects", type=int, default=3, help="documents that a question is about")
    p.add_argument("--words", type=int, default=15, help="of a document")
    p.add_argument("--answer", type=int, default=32, help="words of an answer")
    p.add_argument("--k", type=int, default=2)
    p.add_argument("--distance", type=float, default=0.05, help="retrieval.order_distance")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--json", help="append every result to this file")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_collection(a, pathlib.Path(folder))
        run(a, pathlib.Path(folder))


if __name__ == "__main__":
    main()
