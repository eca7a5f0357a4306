"""Questions and answers derived from manual pages by rules, so that a model learns to answer from what it reads.

A question is the end of a chunk and its answer begins the next one, whose neighbours were found for the question: mostly the
manual itself, as in serving. Question chunks are no part of the collection, so no manual finds its own answers there.
"""

import hashlib
import re

import numpy as np

HEADING = re.compile(r"^[A-Z][A-Z ]+$", re.MULTILINE)
NAME = re.compile(r"^ +(\S[^\n]{0,60}?) +[-\u2013\u2014]+ +(\S[^\n]+)$", re.MULTILINE)
OPTION = re.compile(r"^( {4,11})(-[^\n]{1,60}?)(?:\n\1 {2,}| {3,})(\S[^\n]*(?:\n\1 {2,}\S[^\n]*)*)", re.MULTILINE)
ERROR = re.compile(r"^( {4,11})(E[A-Z0-9]{2,14})(?:\n\1 {2,}| {2,})(\S[^\n]*(?:\n\1 {2,}\S[^\n]*)*)", re.MULTILINE)
LONGEST = 400  # characters of an answer


def sections(text):
    """Heading to the text below it, of a page in the layout of man."""
    parts = HEADING.split(text)
    return dict(zip(HEADING.findall(text), parts[1:]))


def shorten(text):
    """One line: the first paragraph, whole sentences as far as they fit."""
    line = " ".join(text.split("\n\n")[0].split())
    if len(line) <= LONGEST:
        return line
    end = line.rfind(". ", 0, LONGEST)
    return line[: end + 1] if end > 0 else ""


def questions_of(text):
    """[(question, answer)] of a manual page, in its order; none of any other text."""
    found = sections(text)
    name = NAME.search(found.get("NAME", ""))
    if not name:
        return []
    page, purpose = name[1].split(",")[0], name[2].strip().rstrip(".")
    asked = [(f"What is {page}?", f"{page} - {purpose}"), (f"Which manual is about this: {purpose}?", page)]
    if "RETURN VALUE" in found:
        asked.append((f"What does {page} return?", shorten(found["RETURN VALUE"].strip())))
    body = "\n".join(part for heading, part in found.items() if heading not in ("NAME", "SYNOPSIS"))
    for _, option, meaning in OPTION.findall(body):
        asked.append((f"What does the option {option.strip()} of {page} do?", shorten(meaning)))
    for _, error, meaning in ERROR.findall(found.get("ERRORS", "")):
        asked.append((f"When does {page} fail with {error}?", shorten(meaning)))
    answers = {}  # the first of an error that a page has several times
    for question, answer in asked:
        answers.setdefault(question, answer)
    return [(question, answer) for question, answer in answers.items() if answer]


def choose(asked, count):
    """At most count of a page's pairs, by the hash of the question."""
    rank = sorted(asked, key=lambda pair: hashlib.sha256(pair[0].encode()).digest())[:count]
    return [pair for pair in asked if pair in rank]


def question_chunks(documents, vocabulary, m, eod, count):
    """Of [(name, text)]: token rows [chunks, m], and for each the {"document", "text"} that its neighbours are searched by. A
    pair is one chunk that the question ends, and the chunks of its answer."""
    rows, queries = [], []
    for name, text in documents:
        for question, answer in choose(questions_of(text), count):
            asked, told = vocabulary.encode(f"Question: {question}\nAnswer:"), vocabulary.encode(f" {answer}\n")
            if len(asked) > m:
                continue
            parts = [asked, *(told[at : at + m] for at in range(0, len(told), m))]
            rows.append(np.concatenate([np.full(m - len(asked), eod), *parts, np.full(-len(told) % m, eod)]).reshape(-1, m))
            queries += [{"document": name, "text": vocabulary.decode(part)} for part in parts]
    return np.concatenate(rows) if rows else np.empty((0, m), dtype=np.int64), queries
