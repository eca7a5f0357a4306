#!/usr/bin/env python3
"""The first token over documents, by turns: what is not computed again (docs/prefixes.md).

    random_gguf.py m-q8_0.gguf --shape m
    first_token_race.py turns     --model m-q8_0.gguf --peer PEERS/bin/llama-server --json out.jsonl
    first_token_race.py questions --model m-q8_0.gguf --peer PEERS/bin/llama-server --json out.jsonl
    first_token_race.py cold      --model m-q8_0.gguf --peer PEERS/bin/llama-server --json out.jsonl
    first_token_race.py clients   --model m-q8_0.gguf --peer PEERS/bin/llama-server --json out.jsonl

500 documents of `--words` made-up words are a collection; the file's tokenizer reads most of a word as bytes. Each
question is about `--subjects` documents that Zipf's law draws. Servers are started anew for each measurement, with
caches as they come, so that none has seen a prompt; one of them runs at a time. A request writes one token: its time is
that of the first token.

    turns      a conversation of `--turns` turns, each about another document, with answers of the client's own words.
               keep and latest are retrieval.conversation of our server; the peer gets the prompts of keep, with the passages
               in the messages
    questions  `--questions` single questions. stable and relevance are retrieval.order of our server; the peer gets the
               prompts of relevance
    cold       the same in a process that has just started. An earlier process has read other questions about the same
               documents: files has its rows (server.cache_folder), memory has none. The peer gets the same prompts
    clients    the same by `--clients` clients at once, each of which asks its next question when it has its answer

    first   milliseconds to the first token: the median, of turns without the first
    last    of the last turn
    slow    of the slowest twentieth at least
    rate    first tokens a second, of all clients
    found   share of the prompts' tokens that were not computed
    rows    tokens that were computed, of a request in the mean

A measurement takes minutes. With --json a later run of the same command goes on behind the measurements that the file
has; with --minutes a run begins no further ones after that time."""
import argparse
import concurrent.futures
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
# Ours by name: what requests say of retrieval. The first one is compared with the others.
ENTRIES = {"turns": {"keep": {"conversation": "keep"}, "latest": {"conversation": "latest"}},
           "questions": {"stable": {"order": "stable"}, "relevance": {"order": "relevance"}},
           "cold": {"files": {"order": "relevance"}, "memory": {"order": "relevance"}},
           "clients": {"stable": {"order": "stable"}, "relevance": {"order": "relevance"}}}
# Whose prompts the peer gets.
BASE = {"turns": "keep", "questions": "relevance", "cold": "memory", "clients": "relevance"}
UNITS = {"first": "ms", "last": "ms", "slow": "ms", "rate": "a second", "found": "of 1", "rows": "tokens"}


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
              "server": {"port": 0, "max_sequences": a.sequences, "max_context": a.context, "max_queue": a.clients,
                         "max_requests": a.clients}}
    (folder / "retro.json").write_text(json.dumps(config))
    done = subprocess.run([a.index, "build", "--out", str(folder / "collection"), "--set", f"retrieval.embedder={DEPS / 'minilm'}",
                           "--set", f"model.path={ROOT / 'models/retro-docs'}", str(folder / "pages")], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)


def conversation(a, seed):
    draw = random.Random(seed)
    messages, requests = [], []
    for i in draw.sample(range(DOCUMENTS), a.turns):
        messages.append({"role": "user", "content": f"Tell of {subject(i)}"})
        requests.append(list(messages))
        messages.append({"role": "assistant", "content": " ".join(f"w{draw.randrange(5000, 30000)}" for _ in range(a.answer))})
    return requests


def questions(a, seed):
    draw = random.Random(seed)
    weights = [1 / (i + 1) for i in range(DOCUMENTS)]
    requests = []
    for _ in range(a.questions):
        picked = {i: None for i in draw.choices(range(DOCUMENTS), weights, k=a.subjects)}
        words = " and ".join(subject(i) for i in picked)
        requests.append([{"role": "user", "content": f"{words} w{draw.randrange(5000, 30000)}?"}])
    return requests


def earlier_questions(a, seed):
    """Other ones. A negative seed would draw the same: Python takes its magnitude."""
    return questions(a, seed + 1000)


def ask(server, messages, retrieval=None):
    """Seconds, and the reply."""
    body = {"messages": messages, "max_tokens": 1, "temperature": 0, "cache_prompt": True}
    if retrieval:
        body["retrieval"] = retrieval
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    began = time.monotonic()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    reply = response.read()
    seconds = time.monotonic() - began
    connection.close()
    if response.status != 200:
        raise ValueError(f"{server.process.args[0]}: {reply.decode()[:500]}")
    return seconds, json.loads(reply)


def ask_all(a, server, requests, retrieval=None):
    """Each client begins the next of the requests that is left. Seconds and replies, in the order of the requests."""
    clients = a.clients if a.test == "clients" else 1
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        return list(pool.map(lambda messages: ask(server, messages, retrieval), requests))


def shown(reply):
    """What our server put before the question."""
    neighbors = reply["retrieval"][0]["neighbors"]
    return "".join(f"[{n['number']}] {n['title']}: see above\n\n" if n.get("again") else f"[{n['number']}] {n['title']}\n{n['text']}\n\n"
                   for n in neighbors)


def filled(requests, replies):
    """The requests as another server gets them: with the passages in their messages, earlier ones where they stood."""
    prompts, put_in = [], []
    for messages, (_, reply) in zip(requests, replies):
        users = sum(m["role"] == "user" for m in messages)
        put_in = [*put_in[: users - 1], shown(reply)]
        before = iter(put_in)
        prompts.append([{**m, "content": next(before) + m["content"]} if m["role"] == "user" else m for m in messages])
    return prompts


def counted(reply):
    usage = reply["usage"]
    return usage["prompt_tokens"], (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)


def summary(a, replies, wall):
    times = [seconds for seconds, _ in replies]
    tokens, found = (sum(n) for n in zip(*(counted(reply) for _, reply in replies)))
    result = {"found": found / tokens, "rows": (tokens - found) / len(times)}
    if a.test == "turns":
        return {"first": 1000 * statistics.median(times[1:]), "last": 1000 * times[-1], **result}
    slow = sorted(times)[int(0.95 * len(times))]
    return {"first": 1000 * statistics.median(times), "slow": 1000 * slow, "rate": len(times) / wall, **result}


def start_ours(a, folder, *sets):
    words = [word for one in sets for word in ("--set", one)]
    return prefix_race.Server([a.server, "--config", str(folder / "retro.json"), *words], 0, {}, folder / "ours.log")


def rows_folder(folder, seed):
    return folder / f"rows-{seed}"


def leave_rows(a, folder, seed):
    """An earlier process reads other questions, and leaves its rows in files."""
    rows = rows_folder(folder, seed)
    if rows.exists():
        return
    server = start_ours(a, folder, f"server.cache_folder={rows}")
    try:
        ask_all(a, server, earlier_questions(a, seed), {"enabled": True, "mode": "prompt", **ENTRIES["cold"]["files"]})
    finally:
        server.stop()


def start(a, folder, name, seed):
    if name == "peer":
        return prefix_race.start_peer(a, folder)
    if a.test == "cold" and name == "files":
        leave_rows(a, folder, seed)
        return start_ours(a, folder, f"server.cache_folder={rows_folder(folder, seed)}")
    return start_ours(a, folder)


def measure(a, folder, name, seed, prompts):
    """One entry of a round. The peer gets what BASE was told to have read, which is asked first where it is not known."""
    base = BASE[a.test]
    if name == "peer" and seed not in prompts:
        measure(a, folder, base, seed, prompts)
    requests = prompts[seed] if name == "peer" else (conversation if a.test == "turns" else questions)(a, seed)
    retrieval = None if name == "peer" else {"enabled": True, "mode": "prompt", **ENTRIES[a.test][name]}
    server = start(a, folder, name, seed)
    try:
        ask(server, [{"role": "user", "content": "w1"}], None if name == "peer" else {"enabled": False})
        with race.Others([server.process.pid]) as others:
            began = time.monotonic()
            replies = ask_all(a, server, requests, retrieval)
            wall = time.monotonic() - began
    finally:
        server.stop()
    if name == base:
        prompts[seed] = filled(requests, replies)
    return {**summary(a, replies, wall), "others": others.cpus}


def title_of(a):
    what = {"turns": f"{a.turns} turns", "clients": f"{a.questions} questions of {a.clients} clients"}.get(a.test, f"{a.questions} questions")
    return f"{a.test}: {what}, {a.k} passages of {a.words} words, {a.threads} threads, {a.sequences} sequences, {pathlib.Path(a.model).name}"


def ratios_of(a):
    first, second = ENTRIES[a.test]
    ratios = [(f"{first} / {second}, {test}", test, first, [second]) for test in ("first", "rows", *(["last"] if a.test == "turns" else []))]
    if a.peer:
        ratios.append((f"{first} / peer, first", "first", first, ["peer"]))
    return ratios


def run(a, folder):
    prompts = {}
    names = [*ENTRIES[a.test], *(["peer"] if a.peer else [])]
    entries = {name: lambda i, name=name: measure(a, folder, name, i + 1, prompts) for name in names}
    end = time.monotonic() + 60 * a.minutes if a.minutes else None
    results = race.run_numbered_rounds(title_of(a), entries, a.rounds, a.json, end)
    if results:
        race.print_results(title_of(a), results, UNITS, ratios_of(a))
        race.print_rounds(results, UNITS)
    if len(results) < a.rounds:
        print(f"{len(results)} of {a.rounds} rounds are complete" + (": the same command goes on" if a.json else ""))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("test", choices=list(ENTRIES))
    p.add_argument("--server", default="build/retro-server")
    p.add_argument("--index", default="build/retro-index")
    p.add_argument("--model", required=True, help="a GGUF file, which both servers open")
    p.add_argument("--peer", help="llama-server")
    p.add_argument("--peer-args", default="", help="more arguments for llama-server")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--sequences", type=int, help="of both servers: 8, or 1 for turns")
    p.add_argument("--context", type=int, help="tokens of a sequence: 4096, or 8192 for turns")
    p.add_argument("--turns", type=int, default=10)
    p.add_argument("--questions", type=int, default=200)
    p.add_argument("--clients", type=int, default=64)
    p.add_argument("--subjects", type=int, default=3, help="documents that a question is about")
    p.add_argument("--words", type=int, default=15, help="of a document")
    p.add_argument("--answer", type=int, default=32, help="words of an answer")
    p.add_argument("--k", type=int, default=2)
    p.add_argument("--distance", type=float, default=0.05, help="retrieval.order_distance")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--minutes", type=float, help="begin no measurement after these")
    p.add_argument("--json", help="append every result to this file, and go on behind those that it has")
    a = p.parse_args()
    a.sequences = a.sequences or (1 if a.test == "turns" else 8)
    a.context = a.context or (8192 if a.test == "turns" else 4096)
    with tempfile.TemporaryDirectory() as folder:
        make_collection(a, pathlib.Path(folder))
        run(a, pathlib.Path(folder))


if __name__ == "__main__":
    main()
