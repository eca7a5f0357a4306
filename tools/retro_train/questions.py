"""Questions and answers derived from manual pages by rules, so that a model learns to answer from what it reads.

A question is the end of a chunk and its answer begins the next one, whose neighbours were found for the question: mostly the
manual itself, as in serving. Question chunks are no part of the collection, so no manual finds its own answers there.
"""

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

HEADING = re.compile(r"^[A-Z][A-Z ]+$", re.MULTILINE)
NAME = re.compile(r"^ +(\S[^\n]{0,60}?) +[-\u2013\u2014]+ +(\S[^\n]+)$", re.MULTILINE)
# A tag and its meaning, in the next line or, behind a short tag, in the same one: one of six characters is followed by one blank.
MEANING = r"(\S[^\n]*(?:\n\1 {2,}\S[^\n]*)*)"
OPTION = re.compile(r"^( {4,11})(-[^\n]{1,60}?)(?:\n\1 {2,}| {3,}|(?<= -\S{5}) (?=\S))" + MEANING, re.MULTILINE)
NEXT = r"(?:\n\1 {2,}| {2,}|(?<= [A-Z0-9_]{6}) )"
ERROR = re.compile(r"^( {4,11})(E[A-Z0-9]{2,14})" + NEXT + MEANING, re.MULTILINE)
FLAG = re.compile(r"^( {4,11})([A-Z][A-Z0-9]*_[A-Z0-9_]{2,30})(?: \([^\n)]*\))?" + NEXT + MEANING, re.MULTILINE)
CONDITION = re.compile(r"(?:^|(?<=\. ))(If|When|On|Upon) ([^,.;:()]{5,80}), ([^.]{10,300}\.)(?= |$)")  # a sentence of one line
LONGEST = 400  # characters of an answer
ORDERS = frozenset("""add allow append apply attach avoid build change check clear compare compile compress convert copy count create decode
define delete disable display do dump edit enable encode exclude execute exit expand explain extract filter find follow force format
generate give hide highlight ignore include insert install invoke join keep limit list load log look make mark match merge move name
omit open output override pass perform pipe preserve prevent print process produce prompt put quit quote read remove rename repeat
replace report reset restore reverse run save search select send separate set show skip sort specify start stop store strip
suppress treat truncate turn update use verify wait warn wrap write""".split())  # verbs that a meaning in the imperative begins with
PLACE_WORDS = 6  # of an answer, by which its place in the manual is found


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


def third_person(order):
    """"print the size" to "prints the size"."""
    verb, *rest = order.split(" ", 1)
    if re.search(r"[^aeiou]y$", verb):
        verb = verb[:-1] + "ies"
    else:
        verb += "es" if re.search(r"(s|x|z|ch|sh|o)$", verb) else "s"
    return " ".join([verb, *rest])


def option_questions(page, option, meaning):
    """[(question, answer)]: from the option to its meaning, and back. People ask about one form of an option that has several."""
    one = re.split(r"[=\[ ]", option.split(", ")[-1])[0]
    asked = [(f"What does the option {form} of {page} do?", meaning) for form in dict.fromkeys((option, one))]
    purpose = re.split(r"[.;:,(] |[.;:,]$", meaning)[0]
    if purpose:
        purpose, answer = purpose[0].lower() + purpose[1:], f"{option} {meaning}"
        asked.append((f"Which option of {page} does this: {purpose}?", answer))
        if purpose.split()[0] in ORDERS:
            asked += [(form, answer) for form in (f"How do I {purpose} with {page}?", f"How do I make {page} {purpose}?",
                                                  f"Which option of {page} {third_person(purpose)}?")]
    return asked


def spoken_names(page, synopsis):
    """Two names of a page, for every other question one: people write a call with its brackets and without, and "git log" for git-log."""
    if f"{page}(" in synopsis:
        return page, f"{page}()"
    words = page.replace("-", " ", 1)
    return page, words if words in synopsis else page


def condition_questions(form, text):
    """[(question, answer)] of the sentences that begin with a condition; form has a place for it."""
    paragraphs = (" ".join(part.split()) for part in text.split("\n\n"))
    found = (match for part in paragraphs for match in CONDITION.finditer(part))
    return [(form.format(f"{match[1].lower()} {match[2]}"), match[0]) for match in found if len(match[0]) <= LONGEST]


def prose_questions(names, found):
    """[(question, answer)] about what a page says of values, conditions, flags and errors."""
    asked = []
    if "RETURN VALUE" in found:
        asked += [(f"What does {name} return?", shorten(found["RETURN VALUE"].strip())) for name in names]
        asked += condition_questions(f"What does {names[1]} return {{}}?", found["RETURN VALUE"])
    for name, form in zip(reversed(names), ("What does {} do {{}}?", "What happens with {} {{}}?")):
        asked += condition_questions(form.format(name), found.get("DESCRIPTION", ""))
    for i, (_, flag, meaning) in enumerate(FLAG.findall(found.get("DESCRIPTION", ""))):
        asked.append((f"What does the flag {flag} of {names[i % 2]} do?", shorten(meaning)))
    for i, (_, error, meaning) in enumerate(ERROR.findall(found.get("ERRORS", ""))):
        asked.append((f"When does {names[i % 2]} fail with {error}?", shorten(meaning)))
    return asked


def questions_of(text):
    """[(question, answer)] of a manual page, in its order; none of any other text."""
    found = sections(text)
    name = NAME.search(found.get("NAME", ""))
    if not name:
        return []
    page, purpose = name[1].split(",")[0], name[2].strip().rstrip(".")
    asked = [(f"What is {page}?", f"{page} - {purpose}"), (f"Which manual is about this: {purpose}?", page)]
    names = spoken_names(page, found.get("SYNOPSIS", ""))
    body = "\n".join(part for heading, part in found.items() if heading not in ("NAME", "SYNOPSIS"))
    for i, (_, option, meaning) in enumerate(OPTION.findall(body)):
        asked += option_questions(names[i % 2], option.strip(), shorten(meaning))
    asked += prose_questions(names, found)
    answers = {}  # the first of an error that a page has several times
    for question, answer in asked:
        answers.setdefault(question, answer)
    return [(question, answer) for question, answer in answers.items() if answer]


def choose(asked, count):
    """At most count of a page's pairs, by the hash of the question."""
    rank = sorted(asked, key=lambda pair: hashlib.sha256(pair[0].encode()).digest())[:count]
    return [pair for pair in asked if pair in rank]


def find_answer(text, answer):
    """The byte of the manual where the answer stands, by its first words or its last; -1: nowhere in these words."""
    words = answer.split()
    for part in (words[:PLACE_WORDS], words[-PLACE_WORDS:]):
        found = re.search(r"\s+".join(map(re.escape, part)), text) if part else None
        if found:
            return len(text[: found.start()].encode())
    return -1


def read_manuals(path):
    """The file names of manuals in lines of {"manual": name, ...}."""
    return {json.loads(line)["manual"] for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()}


@dataclass
class QuestionChunks:
    """A pair of question and answer is one chunk that the question ends, and the chunks of its answer."""

    rows: list = field(default_factory=list)  # [chunks] of tokens [m]
    queries: list = field(default_factory=list)  # [chunks] the {"document", "text"} that the chunk's neighbours are searched by
    places: list = field(default_factory=list)  # [chunks] (document, byte) of what the next chunk says; None: it is not to be found


def add_pair(chunks, name, text, question, answer, vocabulary, m, eod):
    asked, told = vocabulary.encode(f"Question: {question}\nAnswer:"), vocabulary.encode(f" {answer}\n")
    if len(asked) > m:
        return
    parts = [told[at : at + m] for at in range(0, len(told), m)]
    chunks.rows.append(np.concatenate([np.full(m - len(asked), eod), asked]))
    chunks.rows += [np.concatenate([part, np.full(m - len(part), eod)]) for part in parts]
    chunks.queries += [{"document": name, "text": vocabulary.decode(part)} for part in (asked, *parts)]
    for part in parts:
        place = find_answer(text, vocabulary.decode(part))
        chunks.places.append((name, place) if place >= 0 else None)
    chunks.places.append(None)


def question_chunks(documents, vocabulary, m, eod, count, left_out=frozenset()):
    """QuestionChunks of at most count pairs of each of [(name, text)], without those whose file is named in left_out."""
    chunks = QuestionChunks()
    for name, text in documents:
        if Path(name).name.removesuffix(".txt") in left_out:
            continue
        for question, answer in choose(questions_of(text), count):
            add_pair(chunks, name, text, question, answer, vocabulary, m, eod)
    return chunks
