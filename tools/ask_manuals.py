#!/usr/bin/env python3
"""Asks a running server questions whose manual is known, with retrieval and without, and counts the answers that quote it.

    tools/ask_manuals.py --collection build/demo/collection --out manuals.md [--server http://127.0.0.1:8080]

An answer quotes a manual when QUOTE or more words in a row stand in both, and not in the question. Words are compared without
case, marks and line ends. The most likely token is taken each time, so the same server gives the same page. An answer that
has LOOP words in a row three times loops. Standard library only.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

from ask_server import ask_server

QUOTE = 6  # words
LOOP = 8


def read_questions(path):
    """[{"manual": file name, "question": text}]"""
    records = [json.loads(line) for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    if not records or not all(isinstance(r.get("manual"), str) and isinstance(r.get("question"), str) for r in records):
        raise ValueError(f'{path}: expected {{"manual": "...", "question": "..."}} a line')
    return records


def runs(text, length):
    """Every run of so many words."""
    words = re.findall(r"\w+", text.lower())
    return [tuple(words[i : i + length]) for i in range(len(words) - length + 1)]


def longest_quote(answer, manual, question):
    """The longest run of QUOTE words or more that the manual has and the question has not; "" for none."""
    for length in range(len(re.findall(r"\w+", answer)), QUOTE - 1, -1):
        known = set(runs(manual, length)) - set(runs(question, length))
        for run in runs(answer, length):
            if run in known:
                return " ".join(run)
    return ""


def loops(text):
    found = runs(text, LOOP)
    return any(found.count(run) >= 3 for run in set(found))


def read_manual(a, name):
    """The document of the collection whose file has this name; a prepared collection's files end in .txt as well."""
    listed = subprocess.run([a.retro_index, "list", "--json", a.collection, name], capture_output=True, text=True)
    found = map(json.loads, listed.stdout.splitlines())
    ids = [d["id"] for d in found if d["path"].split("/")[-1].removesuffix(".txt") == name]
    if len(ids) != 1:
        raise ValueError(f"{a.collection}: {len(ids)} documents are named {name}; expected one {listed.stderr.strip()}")
    return subprocess.run([a.retro_index, "show", a.collection, ids[0]], capture_output=True, text=True, check=True).stdout


def answer_question(a, question, enabled):
    """The answer's first paragraph, the file names of the documents that it was written from, and whether the whole loops."""
    body = {"prompt": f"Question: {question}\nAnswer:", "max_tokens": a.max_tokens, "temperature": 0, "retrieval": {"enabled": enabled}}
    reply = ask_server(a.server, "/v1/completions", body)
    text = reply["choices"][0]["text"]
    names = [n["document"].split("/")[-1].removesuffix(".txt") for c in reply.get("retrieval") or [] for n in c["neighbors"]]
    return text.strip().split("\n\n")[0], names, loops(text)


def options():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--server", default="http://127.0.0.1:8080")
    p.add_argument("--collection", required=True, help="the one that the server searches")
    p.add_argument("--retro-index", default="build/retro-index")
    p.add_argument("--questions", default=pathlib.Path(__file__).with_name("manual_questions.jsonl"))
    p.add_argument("--max-tokens", type=int, default=96)
    p.add_argument("--out", required=True, help="the page, Markdown")
    return p.parse_args()


def write_page(a):
    parts, counts = [], {"found": 0, True: 0, False: 0, "loops": 0}
    records = read_questions(a.questions)
    for number, record in enumerate(records, 1):
        manual = read_manual(a, record["manual"])
        parts.append(f"## {number}. {record['question']}")
        for enabled, title in ((True, "With retrieval"), (False, "Without")):
            answer, names, looping = answer_question(a, record["question"], enabled)
            quote = longest_quote(answer, manual, record["question"])
            counts[enabled] += bool(quote)
            if enabled:
                counts["found"] += record["manual"] in names
                counts["loops"] += looping
                parts.append(f"Manual: {record['manual']}, {'read' if record['manual'] in names else 'not found'}.")
            said = f'quotes "{quote}"' if quote else "quotes nothing of it"
            parts.append(f"**{title}** ({said}): {' '.join(answer.split())}")
    total = len(records)
    head = ["# Questions with known manuals", f"{ask_server(a.server, '/v1/models')['data'][0]['id']}, {a.max_tokens} tokens, the most likely one "
            "each time. Made by `tools/ask_manuals.py`.",
            f"| of {total} | |\n|---|---|\n| the right manual is among the passages read | {counts['found']} |\n"
            f"| the answer quotes it, with retrieval | {counts[True]} |\n| the answer quotes it, without | {counts[False]} |\n"
            f"| answers with retrieval that loop | {counts['loops']} |"]
    pathlib.Path(a.out).write_text("\n\n".join(head + parts) + "\n", encoding="utf-8")
    print(f"{total} questions: manual read {counts['found']}, quoted {counts[True]}, without retrieval {counts[False]}, "
          f"looping {counts['loops']}")


def main():
    a = options()
    try:
        write_page(a)
    except (OSError, ValueError, subprocess.CalledProcessError) as problem:
        sys.exit(f"ask_manuals: {problem}")


if __name__ == "__main__":
    main()
