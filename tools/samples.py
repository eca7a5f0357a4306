#!/usr/bin/env python3
"""Asks a running server for the same completions with retrieval and without, and writes them down as they are.

    tools/samples.py --prompts tools/samples_prompts.txt --out samples.md [--server http://127.0.0.1:8080]

Prompts are paragraphs: an empty line ends one. Each is asked with one seed and one set of sampling options, which stand at
the top of the page, so the same server, collection and options give the same page. Nothing is left out or edited. Standard
library only.
"""
import argparse
import pathlib
import re
import sys

from ask_manuals import LOOP, loops
from ask_server import ask_server

EXCERPT = 160  # characters of a source that are shown


def read_prompts(path):
    prompts = [p.strip("\n") for p in re.split(r"\n[ \t]*\n", pathlib.Path(path).read_text(encoding="utf-8")) if p.strip()]
    if not prompts:
        raise ValueError(f"{path}: no prompts")
    return prompts


def longer_fence(text, least):
    """Backticks that no run of them in the text can end."""
    return "`" * max(least, 1 + max(map(len, re.findall("`+", text)), default=0))


def fenced(text):
    """A block that shows any text as it is."""
    fence = longer_fence(text, 3)
    return f"{fence}text\n{text}\n{fence}"


def one_line(text):
    """A code span of one line: what a source says, its blanks joined, its end cut."""
    text = " ".join(text.split())
    text = text if len(text) <= EXCERPT else text[:EXCERPT].rstrip() + " ..."
    fence = longer_fence(text, 1)
    return f"{fence} {text} {fence}"


def sources(found):
    """The chunks that were read, in the order of the text; `position` is the first token that read them."""
    lines = []
    for chunk in found:
        if not chunk["neighbors"]:
            lines.append(f"* from token {chunk['position']}: nothing near enough")
        for n in chunk["neighbors"]:
            place = f"bytes {n['start']} to {n['end']}, similarity {n['similarity']:.2f}"
            lines.append(f"* from token {chunk['position']}: {one_line(n['document'])}, {place}: {one_line(n['text'])}")
    return "\n".join(lines) or "* no chunk was searched for"


def settings(model, a):
    retro = model["meta"].get("retro", {})
    if not retro.get("chunks"):
        raise ValueError(f"{a.server} has no collection: with retrieval and without would be the same")
    rows = [("model", f"{model['id']}, {model['meta']['n_params']:,} parameters"),
            ("collection", f"{retro['chunks']:,} chunks of {retro['chunk_length']} tokens, generation {retro['generation']}"),
            ("neighbours per chunk", "as the server is configured"),
            ("sampling", f"temperature {a.temperature}, top-p {a.top_p}, at most {a.max_tokens} tokens"), ("seed", f"{a.seed}, for each answer")]
    return "| | |\n|---|---|\n" + "\n".join(f"| {k} | {v} |" for k, v in rows)


def sample(number, prompt, a):
    """One prompt's part of the page, and whether its text with retrieval loops."""
    parts = [f"## {number}", fenced(prompt)]
    for enabled, title in ((True, "With retrieval"), (False, "Without")):
        body = {"prompt": prompt, "max_tokens": a.max_tokens, "temperature": a.temperature, "top_p": a.top_p, "seed": a.seed,
                "retrieval": {"enabled": enabled}}
        answer = ask_server(a.server, "/v1/completions", body)
        parts += [f"**{title}** ({answer['usage']['completion_tokens']} tokens, {answer['choices'][0]['finish_reason']})",
                  fenced(answer["choices"][0]["text"])]
        if enabled:
            looping = loops(answer["choices"][0]["text"])
            parts += ["Read:", sources(answer["retrieval"])]
    return "\n\n".join(parts), looping


def options():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--server", default="http://127.0.0.1:8080")
    p.add_argument("--prompts", required=True, help="paragraphs of text")
    p.add_argument("--out", required=True, help="the page, Markdown")
    p.add_argument("--max-tokens", type=int, default=96)
    p.add_argument("--temperature", type=float, default=0.7)
    p.add_argument("--top-p", type=float, default=0.95)
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


def main():
    a = options()
    try:
        prompts = read_prompts(a.prompts)
        model = ask_server(a.server, "/v1/models")["data"][0]
        table = settings(model, a)
        parts, looping = zip(*(sample(i, prompt, a) for i, prompt in enumerate(prompts, 1)))
        head = ["# Samples", f"{model['id']} after {len(prompts)} beginnings, with retrieval and without, unedited: the first answer to "
                f"each, made by `tools/samples.py`. With retrieval, {sum(looping)} have a run of {LOOP} words three times.", table]
        page = "\n\n".join([*head, *parts]) + "\n"
        pathlib.Path(a.out).write_text(page, encoding="utf-8")
    except (OSError, ValueError) as problem:
        sys.exit(f"samples: {problem}")


if __name__ == "__main__":
    main()
