#!/usr/bin/env python3
"""Guessed tokens (docs/drafts.md): the server with them against itself without, and against llama-server with its n-gram
speculation on the same weights, over HTTP on the loopback, by turns.

    drafts_race.py WORK --shape s --types int8 q4_k --threads 2 --peer PEERS/bin/llama-server --json out.jsonl

The models are copyists (tools/copyist): as costly as trained ones of their shape, and they quote. WORK gets them, unless it
has them from before. All servers run all the time; only one of them is asked at a time. Texts are new in each round and the
same for all entries. Each answer is compared with the one that the texts define; for the peer, whose sums are rounded
otherwise, the share of equal tokens is told.

    edited  a document that is returned with three words changed
    cited   an answer of which half is in quotes of 12 to 60 words
    free    an answer that quotes nothing
    batch   --sequences clients at once: half of them let a document be returned, again and again, the others ask for text
            without quotes

Rates are written tokens per second after the first ones came (of `batch`: after each client's first ones, until the first
text without quotes is done); reading the prompt is not in them. On a machine that is not quiet, --per cpu --threads 1 tells
tokens per second of the server's processor time instead. Without --peer only our two run.
"""
import argparse
import functools
import http.client
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import prefix_race
import race
from http_race import Server, events

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/copyist"))

import make_copyist  # noqa: E402
import q4_k  # noqa: E402
import tasks  # noqa: E402

CONTEXT = 2048
TASKS = ("edited", "cited", "free", "batch")
# The peer's kinds of speculation that need no second model. Their own defaults guess only behind 12 and 24 equal tokens,
# and are slower on these texts.
PEER_KINDS = {
    "none": "",
    "simple": "--spec-type ngram-simple --spec-ngram-simple-size-n 4 --spec-ngram-simple-size-m 16",
    "mod": "--spec-type ngram-mod --spec-ngram-mod-n-match 4 --spec-ngram-mod-n-min 2 --spec-ngram-mod-n-max 16",
    "cache": "--spec-type ngram-cache --spec-draft-n-max 16",
}


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command[0]}: {done.stderr[-2000:]}")


def make_folder(a, shape):
    folder = a.work / f"copyist-{shape}"
    if not folder.exists():
        partial = a.work / f"copyist-{shape}.part"
        make_copyist.make_copyist(partial, make_copyist.SHAPES[shape])
        partial.rename(folder)
    return folder


def make_types(a, folder, kind):
    """The path of our model of a type and the GGUF file of the same numbers; one file where both are asked for Q4_K."""
    ours, out = a.work / f"{folder.name}-{kind}", a.work / f"{folder.name}-{kind}-gguf"
    if kind == "q4_k":
        source, file = make_types(a, folder, "bf16")[1], out / "model.gguf"
        if not file.exists():
            out.mkdir(exist_ok=True)
            (out / "model.part").unlink(missing_ok=True)
            q4_k.convert(source, out / "model.part")
            (out / "model.part").rename(file)
        return file, file
    if kind == "bf16":
        ours = folder
    elif not ours.exists():
        run(a.build / "retro-convert", folder, ours, "--to", kind)
    if not out.exists():
        run(a.build / "retro-convert", ours, out, "--to", "gguf")
    return ours, out / "model.gguf"


def start_ours(a, path, drafts, folder):
    config = {"model": {"path": str(path.resolve()), "threads": a.threads}, "retrieval": {"enabled": False},
              "server": {"port": 0, "max_sequences": a.sequences, "max_context": CONTEXT, "drafts": drafts}}
    file = folder / f"{drafts}.json"
    file.write_text(json.dumps(config))
    return Server([str(a.build / "retro-server"), "--config", str(file)], 0, {}, folder / f"{drafts}.log")


def start_peer(a, path, kind, folder):
    options = argparse.Namespace(peer=a.peer, model=str(path), threads=a.threads, sequences=a.sequences, context=CONTEXT,
                                 peer_args=PEER_KINDS[kind])
    (folder / kind).mkdir()
    return prefix_race.start_peer(options, folder / kind)


class Answer:
    """A request that is read as it is written: `ids`, and the time of each event with how many ids it brought."""

    def __init__(self, server, task):
        self.server, self.task, self.ids, self.times = server, task, [], []

    def ask(self, stop=None):
        """Reads to the end, or until `stop` is set."""
        path, body = prefix_race.request_of(self.server, self.task.prompt, len(self.task.answer))
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=600)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise ValueError(response.read().decode())
        for event in events(response):
            new = prefix_race.new_ids(event)
            self.ids += new
            if new:
                self.times.append((self.server.clock(), len(new)))
            if stop and stop.is_set():
                break
        response.close()
        connection.close()
        return self

    def check(self, whole=True):
        """The share of tokens that are as they must be; less than all of ours ends the race."""
        wanted, peer = self.task.answer[:None if whole else len(self.ids)], bool(self.server.extra)
        equal = sum(a == b for a, b in zip(self.ids, wanted)) / max(1, len(wanted))
        if len(self.ids) != len(wanted) or (equal < 1 and not peer):
            sys.exit(f"{self.server.process.args[0]}: {len(self.ids)} tokens of {len(wanted)}, {equal:.0%} of them as they "
                     "must be")
        return equal if wanted else 1


def rate_alone(server, task):
    """Tokens a second behind the first event, and the share of the answer that is as it must be."""
    answer = Answer(server, task).ask()
    equal = answer.check()
    later = answer.times[1:]
    return sum(n for _, n in later) / (later[-1][0] - answer.times[0][0]), equal


class Client(threading.Thread):
    """Asks for one answer and then sets `stop`, or asks for the same one again until others set it."""

    def __init__(self, server, task, stop, again):
        super().__init__()
        self.server, self.task, self.stop, self.again, self.answers, self.error = server, task, stop, again, [], None

    def run(self):
        try:
            while not self.stop.is_set():
                self.answers.append(Answer(self.server, self.task))
                self.answers[-1].ask(self.stop)
                if not self.again:
                    self.stop.set()
        except (OSError, ValueError, KeyError, http.client.HTTPException) as e:
            self.error = repr(e)
            self.stop.set()

    def check(self):
        if self.error:
            sys.exit(f"{self.server.process.args[0]}: {self.error}")
        return min(answer.check(whole=answer is not self.answers[-1]) for answer in self.answers)

    def times(self):
        return [event for answer in self.answers for event in answer.times]


def rate_together(server, made):
    """Tokens a second of all clients, from when each has begun until the first of those that quote nothing is done. All
    prompts were read before, so that all of them write."""
    for task in made:
        Answer(server, tasks.Task(task.prompt, task.answer[:1], 0)).ask()
    stop = threading.Event()
    clients = [Client(server, task, stop, task.quoted > 0) for task in made]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    equal = min(client.check() for client in clients)
    begun = max(client.times()[0][0] for client in clients)
    ended = min(client.times()[-1][0] for client in clients if not client.again)
    written = sum(n for client in clients for when, n in client.times() if begun < when <= ended)
    return written / (ended - begun), equal


def make_tasks(copyist, seed, length, sequences):
    quotes = max(1, length // 72)
    batch = [tasks.first_of(copyist.edited, f"{seed}/{i}", length // 2) for i in range(sequences // 2)]
    batch += [copyist.free(f"{seed}/{i}", length // 4, length // 3) for i in range(sequences // 2)]
    return {"edited": tasks.first_of(copyist.edited, seed, length), "cited": tasks.first_of(copyist.cited, seed, quotes),
            "free": copyist.free(seed, length, length), "batch": batch}


def measure(server, made):
    result, equals = {}, []
    with race.Others([server.process.pid]) as others:
        for name, of_task in made.items():
            result[name], equal = (rate_together if name == "batch" else rate_alone)(server, of_task)
            equals.append(equal)
    return {**result, "equal": min(equals), "others": others.cpus}


def run_rounds(a, copyist, servers, kind):
    made = [{name: of_task for name, of_task in make_tasks(copyist, f"round {i}", a.tokens, a.sequences).items() if name in a.tasks}
            for i in range(a.rounds + 1)]
    done = dict.fromkeys(servers, 0)

    def entry(name):
        def once():
            done[name] += 1
            return measure(servers[name], made[done[name]])
        return once

    for server in servers.values():
        server.clock = functools.partial(race.process_seconds, server.process.pid) if a.per == "cpu" else time.monotonic
        measure(server, made[0])  # the weights have been read, and costs have been measured
    results = race.run_rounds(f"drafts {a.shape} {kind}", {name: entry(name) for name in servers}, a.rounds, a.json)
    peers = [name for name in servers if name.startswith("peer")]
    ratios = [(f"{name}: on / off", name, "on", ["off"]) for name in a.tasks]
    ratios += [(f"{name}: on / the peer's best", name, "on", peers) for name in a.tasks if peers]
    units = {**dict.fromkeys(a.tasks, "tok/s" if a.per == "wall" else "tok per CPU second"), **({"equal": "of the tokens"} if peers else {})}
    race.print_results(f"copyist {a.shape} {kind}, {a.threads} threads, {a.tokens} tokens", results, units, ratios)


def race_type(a, folder, kind):
    ours, gguf = make_types(a, folder, kind)
    with tempfile.TemporaryDirectory() as logs:
        servers, logs = {}, pathlib.Path(logs)
        try:
            for drafts in ("on", "off"):
                servers[drafts] = start_ours(a, ours, drafts, logs)
            for name in a.kinds if a.peer else ():
                servers[f"peer {name}"] = start_peer(a, gguf, name, logs)
            run_rounds(a, tasks.Copyist(folder), servers, kind)
        finally:
            for server in servers.values():
                server.stop()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("work", type=pathlib.Path, help="a folder for models: they are made where they are missing")
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--shape", choices=make_copyist.SHAPES, default="s")
    p.add_argument("--types", nargs="+", choices=["bf16", "int8", "int4", "q4_k"], default=["int8", "q4_k"])
    p.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    p.add_argument("--peer", help="llama-server")
    p.add_argument("--kinds", nargs="+", choices=PEER_KINDS, default=["none", "simple"], help="of its speculation")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--per", choices=["wall", "cpu"], default="wall", help="the clock of the rates")
    p.add_argument("--tokens", type=int, default=400, help="of a document or an answer, about; 100 to 700")
    p.add_argument("--sequences", type=int, default=16, help="of each server, and clients of `batch`: keys and values of all "
                   "servers have to fit into memory together")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--json", help="append every result to this file")
    a = p.parse_args()
    if not 100 <= a.tokens <= 700:
        p.error("--tokens must be between 100 and 700")
    a.work.mkdir(parents=True, exist_ok=True)
    folder = make_folder(a, a.shape)
    for kind in a.types:
        race_type(a, folder, kind)


if __name__ == "__main__":
    main()
