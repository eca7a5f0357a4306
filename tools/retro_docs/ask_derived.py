#!/usr/bin/env python3
"""Asks a running server what rules derive from manuals, and counts the answers that say what the rules took from the page.

    python tools/retro_docs/ask_derived.py --corpus build/demo/corpus/text [--server http://127.0.0.1:8080]

Up to --most questions are asked about each manual that the file of --questions names, which no question of the training was
about (retro_train/questions.py has the rules). An answer counts when it has RUN words in a row of the derived one, or all of a
shorter one. Words are compared without case and marks. The most likely token is taken each time. Needs the environment of training.
"""
import argparse
import json
import pathlib
import random
import re
import subprocess
import sys

TOOLS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOOLS))
from ask_manuals import read_questions  # noqa: E402
from ask_server import ask_server  # noqa: E402
from retro_train.questions import questions_of  # noqa: E402

RUN = 5  # words


def words_of(text):
    return re.findall(r"\w+", text.lower())


def says(answer, derived):
    got, want = words_of(answer), words_of(derived)
    length = min(RUN, len(want))
    runs = {tuple(want[i:i + length]) for i in range(len(want) - length + 1)}
    return any(tuple(got[i:i + length]) in runs for i in range(len(got) - length + 1))


def derive_questions(corpus, index, manuals, most):
    """[(question, answer)]; a hash of the manual's name draws those that are asked."""
    asked = []
    for manual in sorted(manuals):
        pages = sorted(corpus.rglob(manual))
        if not pages:
            sys.exit(f"ask_derived.py: {corpus} has no {manual}")
        text = subprocess.run([index, "extract", pages[0]], capture_output=True, text=True, check=True).stdout
        pairs = questions_of(text)
        random.Random(manual).shuffle(pairs)
        asked += pairs[:most]
    return asked


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--server", default="http://127.0.0.1:8080")
    p.add_argument("--corpus", type=pathlib.Path, required=True, help="the folder of manuals that the server's collection is of")
    p.add_argument("--retro-index", default="build/retro-index")
    p.add_argument("--questions", default=TOOLS / "manual_questions.jsonl")
    p.add_argument("--most", type=int, default=8, help="questions about one manual")
    a = p.parse_args()
    asked = derive_questions(a.corpus, a.retro_index, {q["manual"] for q in read_questions(a.questions)}, a.most)
    counts = {"with retrieval": 0, "without": 0}
    for question, derived in asked:
        for name, enabled in (("with retrieval", True), ("without", False)):
            reply = ask_server(a.server, "/v1/completions", {"prompt": f"Question: {question}\nAnswer:", "max_tokens": 64, "temperature": 0,
                                                             "retrieval": {"enabled": enabled}})
            counts[name] += says(reply["choices"][0]["text"], derived)
    print(f"{len(asked)} questions: " + ", ".join(f"{count} {name}" for name, count in counts.items()))


if __name__ == "__main__":
    main()
