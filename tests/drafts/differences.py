#!/usr/bin/env python3
"""Count the bytes in which answers of two servers differ: by default one that guesses tokens wherever it can, and one
that guesses none (docs/drafts.md).

    differences.py WORK --answers 500
    differences.py WORK --one server.drafts=on --other server.drafts=off --models llama moe --answers 100000

Both servers get the same random requests; a request has its seed. WORK keeps the models. An answer is compared as JSON
without its name, its times and what was counted of guesses and of kept rows; of a stream, all that came in its events.
One line of output is a model and a kind of request: answers, their bytes, how many of these differ, and how many tokens
were guessed and guessed rightly where guesses were allowed. Each answer that differs is printed with its request. The
exit status is 1 if there is one.
"""
import argparse
import concurrent.futures
import http.client
import json
import pathlib
import random
import sys
import tempfile

import served

sys.path.insert(0, str(served.ROOT / "tests/http"))

from conftest import Server  # noqa: E402

AT_ONCE = 16
UNTOLD = ("id", "created", "system_fingerprint")
UNCOUNTED = ("completion_tokens_details", "prompt_tokens_details")
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 40}, "n": {"type": "integer", "maximum": 99},
                                           "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3}},
          "required": ["name", "n"], "additionalProperties": False}


def sampled(writer, draw):
    fields = {"temperature": draw.choice([0.3, 0.8, 1, 1.7]), "seed": draw.randrange(1000)}
    return fields | draw.choice([{}, {"top_p": 0.9}, {"top_k": 20}, {"min_p": 0.05}])


def penalised(writer, draw):
    return draw.choice([{"presence_penalty": 0.7}, {"frequency_penalty": 0.4}, {"repetition_penalty": 1.3}])


def constrained(name, of_writer):
    return lambda writer, draw: {**draw.choice([{"temperature": 0}, sampled(writer, draw)]),
                                 "structured_outputs": {name: of_writer(writer)}}


# What a kind of request adds to a greedy one.
KINDS = {
    "greedy": lambda writer, draw: {},
    "sampled": sampled,
    "penalties": penalised,
    "no_repeat_ngram_size": lambda writer, draw: {"no_repeat_ngram_size": draw.randrange(2, 9)},
    "logit_bias": lambda writer, draw: {"logit_bias": writer.bias(draw)},
    "schema": constrained("json", lambda writer: SCHEMA),
    "grammar": constrained("grammar", lambda writer: writer.grammar),
    "regex": constrained("regex", lambda writer: writer.regex),
    "stop": lambda writer, draw: {"stop": writer.stop(draw), "include_stop_str_in_output": draw.random() < 0.3},
    "n": lambda writer, draw: {"n": 2, **sampled(writer, draw)},
    "logprobs": lambda writer, draw: {"logprobs": draw.randrange(5), **draw.choice([{}, sampled(writer, draw)])},
    "expected": lambda writer, draw: {},
    "streamed": lambda writer, draw: draw.choice([{}, sampled(writer, draw), {"logprobs": 2}, {"stop": writer.stop(draw)}]),
    "cancelled": lambda writer, draw: draw.choice([{}, sampled(writer, draw)]),
    "mixed": lambda writer, draw: penalised(writer, draw) | sampled(writer, draw) | draw.choice(
        [{"stop": writer.stop(draw)}, {"n": 2}, {"logprobs": 2}, {"no_repeat_ngram_size": 5}]),
}
RETRIEVALS = [{"enabled": False}, {}, {"k": 1}, {"attention": "tokens"}, {"mode": "prompt"}, {"mode": "prompt", "every": 16}]


def make_request(model, writer, kind, draw):
    request = {"prompt": writer.prompt(draw), "max_tokens": draw.randrange(8, 120), "temperature": 0, "return_token_ids": True,
               "ignore_eos": draw.random() < 0.5}
    if model == "retro":
        request["retrieval"] = draw.choice(RETRIEVALS)
    request |= KINDS[kind](writer, draw)
    if "structured_outputs" in request:
        del request["ignore_eos"]
    return request


def told(reply):
    """A reply as text: all but names, times, and counts of what was done to get it."""
    usage = {key: count for key, count in (reply.get("usage") or {}).items() if key not in UNCOUNTED}
    kept = {key: value for key, value in reply.items() if key not in UNTOLD}
    return json.dumps(kept | {"usage": usage}, sort_keys=True).encode()


def counts_of(reply):
    details = (reply.get("usage") or {}).get("completion_tokens_details") or {}
    return [details.get(name, 0) for name in ("drafted_tokens", "accepted_drafted_tokens")]


def joined(into, value):
    """Lists and texts of events one behind another; of anything else the last that was not null."""
    for key, new in value.items():
        old = into.get(key)
        if isinstance(new, dict):
            into[key] = joined(old or {}, new)
        elif isinstance(new, (list, str)) and isinstance(old, type(new)) and key not in ("finish_reason", "object", "model"):
            into[key] = old + new
        elif new is not None:
            into[key] = new
    return into


def read_events(server, request, most):
    """The choices of a stream, each joined; at most so many events are read, then the client leaves."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    body = {**request, "stream": True, "stream_options": {"include_usage": True}}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response, choices, usage, n = connection.getresponse(), {}, {}, 0
    for line in response:
        if line.startswith(b"data: {"):
            event, n = json.loads(line[6:]), n + 1
            usage = event.get("usage") or usage
            for choice in event.get("choices", [{"index": "error", **event}]):
                joined(choices.setdefault(choice["index"], {}), choice)
        if n >= most:
            break
    response.close()
    connection.close()
    return {"status": response.status, "choices": [choices[i] for i in sorted(choices)], "usage": usage}


def ask(server, kind, request, most):
    if kind in ("streamed", "cancelled"):
        return read_events(server, request, most)
    reply = server.post(request)
    return {"status": reply.status, **reply.json()}


def differing(kind, replies):
    """Bytes that differ, and the bytes compared. Of two clients that left, one may have read more than the other."""
    if kind == "cancelled":
        texts = [json.dumps([[c.get("text", ""), c.get("token_ids", [])] for c in reply["choices"]]) for reply in replies]
        begun = [[[c.get("text", ""), c.get("token_ids", [])] for c in reply["choices"]] for reply in replies]
        pairs = [(a[part][:n], b[part][:n]) for a, b in zip(*begun) for part in (0, 1)
                 for n in [min(len(a[part]), len(b[part]))]]
        return sum(x != y for a, b in pairs for x, y in zip(a, b)), min(map(len, texts))
    texts = [told(reply) for reply in replies]
    return sum(a != b for a, b in zip(*texts)) + abs(len(texts[0]) - len(texts[1])), len(texts[1])


class Counts:
    def __init__(self):
        self.answers = self.refused = self.bytes = self.differing = self.drafted = self.right = 0

    def add(self, kind, request, replies):
        wrong, compared = differing(kind, replies)
        self.answers += 1
        self.refused += replies[1]["status"] != 200
        self.bytes += compared
        self.differing += wrong
        drafted, right = counts_of(replies[0])
        self.drafted, self.right = self.drafted + drafted, self.right + right
        if wrong:
            print(f"{wrong} bytes differ: {json.dumps(request)}", *(f"  {told(r).decode()}" for r in replies), sep="\n", flush=True)

    def row(self):
        return [self.answers, self.refused, self.bytes, self.differing, self.drafted, self.right]


def expect(server, requests, draw):
    """Each request expects an edit of its answer."""
    for request in requests:
        text = server.post(request).json()["choices"][0]["text"]
        words = text.split(" ")
        for _ in range(draw.randrange(3)):
            words[draw.randrange(len(words))] = draw.choice(["file", "", "Ärger"])
        request["prediction"] = {"type": "content", "content": " ".join(words)}


def compare(servers, kind, requests, draw, counts):
    """All requests at both servers, as many at once as there are."""
    if kind == "expected":
        expect(servers[1], requests, draw)
    most = [draw.randrange(1, 30) if kind == "cancelled" else 1 << 30 for _ in requests]
    with concurrent.futures.ThreadPoolExecutor(2 * AT_ONCE) as pool:
        asked = [[pool.submit(ask, server, kind, request, n) for request, n in zip(requests, most)] for server in servers]
        for request, *futures in zip(requests, *asked):
            counts.add(kind, request, [future.result() for future in futures])


def rounds(a, model, writer, servers, table):
    """Kinds by turns until there are enough answers: one request, or sixteen at once. The first kind of all is batched."""
    draw = random.Random(f"{a.seed} {model}")
    done = 0
    while done < a.answers:
        for kind in KINDS:
            n = AT_ONCE if draw.random() < 0.3 else draw.randrange(1, 4)
            requests = [make_request(model, writer, kind, draw) for _ in range(n)]
            name = f"{kind}, batched" if n == AT_ONCE else kind
            compare(servers, kind, requests, draw, table.setdefault((model, name), Counts()))
            done += n
            if done >= a.answers:
                break


def start(config, options, folder):
    path = folder / "retro.json"
    folder.mkdir(exist_ok=True)
    path.write_text(json.dumps(config))
    return Server(path, folder, *options)


def print_table(table):
    total = [sum(column) for column in zip(*(counts.row() for counts in table.values()))]
    print(f"{'model':12s} {'kind':30s} {'answers':>8s} {'refused':>8s} {'bytes':>10s} {'differing':>9s} {'guessed':>8s} {'rightly':>8s}")
    for (model, kind), row in [*((key, counts.row()) for key, counts in sorted(table.items())), (("all", ""), total)]:
        print(f"{model:12s} {kind:30s} {row[0]:8d} {row[1]:8d} {row[2]:10d} {row[3]:9d} {row[4]:8d} {row[5]:8d}")
    return total[3]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("work", type=pathlib.Path, help="a folder for models; they are made where they are missing")
    p.add_argument("--one", action="append", metavar="OPTION=VALUE", help="of the first server (server.drafts=always)")
    p.add_argument("--other", action="append", metavar="OPTION=VALUE", help="of the second one (server.drafts=off)")
    p.add_argument("--models", nargs="+", choices=served.MODELS, default=list(served.MODELS))
    p.add_argument("--answers", type=int, default=100, help="of each model")
    p.add_argument("--threads", type=int, default=1, help="of each server")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    a.work.mkdir(parents=True, exist_ok=True)
    options = a.one or ["server.drafts=always"], a.other or ["server.drafts=off"]
    table = {}
    for model in a.models:
        writer = served.MODELS[model](a.work)
        config = writer.config | {"model": {**writer.config["model"], "threads": a.threads}}
        with tempfile.TemporaryDirectory() as logs:
            servers = []
            try:
                for i, of_one in enumerate(options):
                    servers.append(start(config, of_one, pathlib.Path(logs) / str(i)))
                rounds(a, model, writer, servers, table)
            finally:
                stopped = [server.stop() for server in servers]
            if any(stopped):
                sys.exit(f"{model}: a server ended with {stopped}")
    sys.exit(print_table(table) > 0)


if __name__ == "__main__":
    main()
