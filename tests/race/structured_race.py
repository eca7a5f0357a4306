#!/usr/bin/env python3
"""The price of structured output: tokens per second of one stream with a schema, a regular expression or a grammar, and
of the same stream without, by turns, over HTTP on the loopback.

    structured_race.py --model models/retro-docs --threads 1
    structured_race.py --make WORK/words && build/retro-convert WORK/words WORK/words-int8 --to int8
    structured_race.py --model WORK/words-int8 --threads 1

--make writes a Llama of random weights (24 layers of 896, 0.5 G parameters) whose vocabulary has 151 936 entries. Answers
are drawn at temperature 0 and cut after --tokens; a server that ends one before that is an error. The first token, for
which the prompt is computed and the grammar compiled, is not in the rate.
"""
import argparse
import http.client
import json
import pathlib
import sys
import tempfile
import time

import race
from http_race import Server, events

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

PERSON = {"type": "object", "additionalProperties": False, "required": ["name", "age", "tags"], "properties": {
    "name": {"type": "string", "maxLength": 60}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "tags": {"type": "array", "maxItems": 5, "items": {"enum": ["red", "green", "blue"]}}}}
KINDS = {
    "free": {"ignore_eos": True},
    "schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "people", "schema": {
        "type": "array", "minItems": 100, "items": PERSON}}}},
    "regex": {"structured_outputs": {"regex": "([a-z]{1,12} ){300}"}},
    "grammar": {"structured_outputs": {"grammar": 'root ::= line{200}\nline ::= word (" " word)* "\\n"\nword ::= [a-z]+ | [0-9]+'}},
}


def write_model(folder):
    import downloaded as d

    d.LAYERS, d.HIDDEN, d.HEADS, d.FFN, d.VOCAB = 24, 896, 14, 4864, 151936
    d.ENDS = [d.VOCAB - 2, d.VOCAB - 1]
    d.CONFIG.update(num_hidden_layers=d.LAYERS, hidden_size=d.HIDDEN, num_attention_heads=d.HEADS, intermediate_size=d.FFN,
                    vocab_size=d.VOCAB, bos_token_id=d.VOCAB - 3, eos_token_id=d.ENDS[0])
    d.write_folder(folder)


def rate_of(server, kind, tokens):
    body = {"prompt": "A list of people: ", "max_tokens": tokens, "temperature": 0, "stream": True, "return_token_ids": True,
            "retrieval": {"enabled": False}, **KINDS[kind]}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        sys.exit(response.read().decode())
    times = []
    for event in events(response):
        for choice in event.get("choices", []):
            times += [time.monotonic()] * len(choice.get("token_ids", []))
    connection.close()
    if len(times) < tokens:
        sys.exit(f"{kind}: {len(times)} tokens of {tokens}")
    return (len(times) - 1) / (times[-1] - times[0])


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--server", default="build/retro-server")
    what = a.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", type=pathlib.Path)
    what.add_argument("--make", type=pathlib.Path)
    a.add_argument("--threads", type=int, default=1)
    a.add_argument("--tokens", type=int, default=200)
    a.add_argument("--rounds", type=int, default=7)
    a.add_argument("--json")
    a = a.parse_args()

    if a.make:
        write_model(a.make)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "retro.json"
        model = {"path": str(a.model.resolve()), "threads": a.threads}
        path.write_text(json.dumps({"model": model, "server": {"port": 0}}))
        server = Server([a.server, "--config", str(path)], 0, {}, pathlib.Path(folder) / "log")

        def entry(kind):
            def run():
                with race.Others([server.process.pid]) as others:
                    rate = rate_of(server, kind, a.tokens)
                return {"rate": rate, "others": others.cpus}
            return run

        entries = {kind: entry(kind) for kind in KINDS}
        for run in entries.values():
            run()
        results = race.run_rounds("structured", entries, a.rounds, a.json)
        server.stop()
    ratios = [(f"{kind} / free", "rate", kind, ["free"]) for kind in KINDS if kind != "free"]
    race.print_results(f"structured output, {a.model.name}, {a.threads} threads", results, {"rate": "tok/s"}, ratios)


if __name__ == "__main__":
    main()
