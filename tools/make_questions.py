#!/usr/bin/env python3
"""Questions with known answers from manuals, for retro-eval retrieval.

    tools/fetch_corpus.sh DEST && tools/make_questions.py DEST/text > docs/results/retrieval/questions.jsonl

Nothing is written by hand. A question is one of these, and its answer is a page:

    name       what a NAME line says of its page
    option     what a page says of an option, without the option's name
    reference  a sentence that sends its reader to another page, without the page's name; its own page is left out

Texts that stand on several pages name all of them. Which are taken is decided by a hash, so that the same corpus gives
the same file.
"""
import collections
import hashlib
import json
import pathlib
import re
import subprocess
import sys

COUNTS = {"name": 130, "option": 120, "reference": 90}
WORDS = range(5, 40)


def page_text(index, path):
    done = subprocess.run([index, "extract", path], capture_output=True, text=True, check=True)
    return done.stdout


def squeeze(text):
    return " ".join(text.split())


def names(text):
    """The words behind the dash of the NAME section."""
    found = re.search(r"^NAME\n((?: .*\n)+)", text, re.MULTILINE)
    parts = re.split(r" [-–—] ", squeeze(found[1]), maxsplit=1) if found else []
    return parts[1:]


def options(text):
    """The first line of the text below each option."""
    for match in re.finditer(r"^ {7}(-\S.*)\n {14}(\S.*)$", text, re.MULTILINE):
        sentence = re.split(r"(?<=[.;]) ", squeeze(match[2]))[0].rstrip(".;")
        if "--" not in sentence:
            yield sentence


def references(text, pages):
    """Sentences with one reference to a page that is there: the sentence without it, and the page."""
    for sentence in re.split(r"(?<=[.;])\s+|\n\s*\n", text):
        sentence = squeeze(sentence)
        found = re.findall(r"\b([\w.+-]+)\((\d)\)", sentence)
        pointers = re.findall(r"[Ss]ee (?:also )?([\w.+-]+)\((\d)\)", sentence)
        if len(found) != 1 or len(pointers) != 1 or f"{found[0][0]}.{found[0][1]}" not in pages:
            continue
        rest = re.sub(r"[,;(]?\s*\b[Ss]ee (?:also )?[\w.+-]+\(\d\)\)?", "", sentence)
        yield rest.strip(" .,;:()"), f"{found[0][0]}.{found[0][1]}"


def choose(questions, count):
    ordered = sorted(questions, key=lambda q: hashlib.sha256(q["question"].encode()).hexdigest())
    return ordered[:count]


def main():
    root = pathlib.Path(sys.argv[1])
    index = sys.argv[2] if len(sys.argv) > 2 else "build/retro-index"
    paths = sorted(root.rglob("*.gz"))
    pages = {path.name.removesuffix(".gz"): f"{root.name}/{path.relative_to(root)}" for path in paths}
    answers = {kind: collections.defaultdict(set) for kind in COUNTS}
    sources = {}
    for path in paths:
        text, stored = page_text(index, path), pages[path.name.removesuffix(".gz")]
        for question in names(text):
            answers["name"][question].add(stored)
        for question in options(text):
            answers["option"][question].add(stored)
        for question, page in references(text, pages):
            if pages[page] != stored:
                answers["reference"][question].add(pages[page])
                sources.setdefault(question, set()).add(stored)
    for kind, count in COUNTS.items():
        lines = [{"kind": kind, "question": question, "documents": sorted(documents)}
                 | ({"exclude": sorted(sources[question])} if kind == "reference" else {})
                 for question, documents in answers[kind].items()
                 if len(question.split()) in WORDS and len(documents) <= 3]
        for line in choose(lines, count):
            print(json.dumps(line, ensure_ascii=False))


if __name__ == "__main__":
    main()
