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

from .rewording import reword, seeded

HEADING = re.compile(r"^[A-Z][A-Z ]+$", re.MULTILINE)
NAME = re.compile(r"^ +(\S[^\n]{0,60}?) +[-\u2013\u2014]+ +(\S[^\n]+)$", re.MULTILINE)
# A tag and its meaning, in the next line or, behind a short tag, in the same one: one of six characters is followed by one blank.
MEANING = r"(\S[^\n]*(?:\n\1 {2,}\S[^\n]*)*)"
OPTION = re.compile(r"^( {4,11})(-[^\n]{1,60}?)(?:\n\1 {2,}| {3,}|(?<= -\S{5}) (?=\S))" + MEANING, re.MULTILINE)
NEXT = r"(?:\n\1 {2,}| {2,}|(?<= [A-Z0-9_]{6}) )"
ERROR = re.compile(r"^( {4,11})(E[A-Z0-9]{2,14})" + NEXT + MEANING, re.MULTILINE)
FLAG = re.compile(r"^( {4,11})([A-Z][A-Z0-9]*_[A-Z0-9_]{2,30})(?: \([^\n)]*\))?" + NEXT + MEANING, re.MULTILINE)
CONDITION = re.compile(r"(?:^|(?<=\. ))(If|When|On|Upon) ([^,.;:()]{5,80}), ([^.]{10,300}\.)(?= |$)")  # a sentence of one line
ARGUMENT = re.compile(r"(?:^|(?<=\. ))(The (?:argument ([a-z]\w{1,20})|([a-z]\w{1,20}) argument) [^.]{10,300}\.)(?= |$)")
STATUS = re.compile(r"^ {4,11}(\d{1,3}) +(\S[^\n]{8,300})$", re.MULTILINE)
COMMAND = re.compile(r"^( {4,11})([a-z][a-z-]{2,20}(?: [^\n]{1,50})?)\n\1 {2,}" + MEANING, re.MULTILINE)
LONGEST = 400  # characters of an answer
ORDERS = frozenset("""add allow append apply attach avoid build change check clear compare compile compress convert copy count create decode
define delete disable display do dump edit enable encode exclude execute exit expand explain extract filter find follow force format
generate give hide highlight ignore include insert install invoke join keep limit list load log look make mark match merge move name
omit open output override pass perform pipe preserve prevent print process produce prompt put quit quote read remove rename repeat
replace report reset restore reverse run save search select send separate set show skip sort specify start stop store strip
suppress treat truncate turn update use verify wait warn wrap write""".split())  # verbs that a meaning in the imperative begins with
OTHERS = 2  # wordings of a question beside the rules' own
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


def first_part(meaning, ends):
    """Up to the first of the marks, in the way it is said within a sentence; "" where nothing is left."""
    part = re.split(rf"[{ends}] |[{ends}]$", meaning)[0]
    return part[:1].lower() + part[1:]


CLAUSE, SENTENCE = ".;:,(", ".;"


@dataclass(frozen=True)
class Asked:
    """A question whose form has a place {} for what it asks about, which may be said in other words; forms say it in several ways."""

    forms: tuple  # of str
    subject: str  # "" where the forms have no place for it
    answer: str

    def first(self):
        """As the rules put it."""
        return self.forms[0].replace("{}", self.subject), self.answer

    def other(self, copy):
        """One of the other forms and other words, the same ones for the same copy."""
        rng = seeded(self.forms[0] + self.subject, copy)
        form = rng.choice(self.forms)
        return form.replace("{}", reword(self.subject, rng)), self.answer


def option_questions(page, option, meaning):
    """From the option to its meaning, and back. People ask about one form of an option that has several."""
    one = re.split(r"[=\[ ]", option.split(", ")[-1])[0]
    asked = [Asked((f"What does the option {form} of {page} do?", f"What does {form} do in {page}?", f"What does {page} {form} do?",
                    f"What is the option {form} of {page} for?", f"What does {form} of {page} mean?"), "", meaning)
             for form in dict.fromkeys((option, one))]
    purpose, answer = first_part(meaning, CLAUSE), f"{option} {meaning}"
    if purpose:
        asked.append(Asked((f"Which option of {page} does this: {{}}?", f"Which option of {page} is for this: {{}}?"), purpose, answer))
        if purpose.startswith("do not "):
            asked.append(Asked((f"How do I make {page} not {{}}?", f"Which option makes {page} not {{}}?", f"How do I stop {page}: it should not {{}}?"),
                               purpose.removeprefix("do not "), answer))
        elif purpose.split()[0] in ORDERS:
            asked += [Asked((f"How do I {{}} with {page}?", f"How can I {{}} with {page}?", f"With {page}, how do I {{}}?", "How do I {}?"), purpose, answer),
                      Asked((f"How do I make {page} {{}}?", f"What makes {page} {{}}?", f"How can I get {page} to {{}}?",
                             f"Which option lets {page} {{}}?", f"Which option tells {page} to {{}}?"), purpose, answer),
                      Asked((f"Which option of {page} {{}}?", f"Which {page} option {{}}?"), third_person(purpose), answer)]
    return asked


def spoken_names(page, synopsis):
    """Two names of a page, for every other question one: people write a call with its brackets and without, and "git log" for git-log."""
    if f"{page}(" in synopsis:
        return page, f"{page}()"
    words = page.replace("-", " ", 1)
    return page, words if words in synopsis else page


def condition_questions(forms, text):
    """Of the sentences that begin with a condition."""
    paragraphs = (" ".join(part.split()) for part in text.split("\n\n"))
    found = (match for part in paragraphs for match in CONDITION.finditer(part))
    return [Asked(forms, f"{match[1].lower()} {match[2]}", match[0]) for match in found if len(match[0]) <= LONGEST]


def there_and_back(tag, meaning, there, back, ends):
    """From a tag to its meaning, and from what the meaning begins with to both."""
    part = first_part(meaning, ends)
    asked = [Asked(there, "", meaning)]
    return asked + [Asked(back, part, f"{tag} {meaning}")] if part else asked


def error_questions(name, text):
    """Of the errors of a call."""
    asked = []
    for _, error, meaning in ERROR.findall(text):
        there = (f"When does {name} fail with {error}?", f"What does {error} mean for {name}?", f"Why does {name} return {error}?")
        back = (f"Which error does {name} return if {{}}?", f"What error does {name} give when {{}}?", f"How does {name} fail if {{}}?")
        asked += there_and_back(error, shorten(meaning), there, back, SENTENCE)
    return asked


def flag_questions(name, text):
    """Of the flags of a call."""
    asked = []
    for _, flag, meaning in FLAG.findall(text):
        there = (f"What does the flag {flag} of {name} do?", f"What does {flag} do in {name}?", f"What is {flag} of {name} for?")
        back = (f"Which flag of {name} does this: {{}}?", f"Which flag for {name} is for this: {{}}?")
        asked += there_and_back(flag, shorten(meaning), there, back, CLAUSE)
    return asked


def argument_questions(name, text):
    """Of the sentences about an argument of a call."""
    found = (match for part in text.split("\n\n") for match in ARGUMENT.finditer(" ".join(part.split())))
    return [Asked((f"What is the argument {match[2] or match[3]} of {name} for?", f"What does the argument {match[2] or match[3]} of {name} say?",
                   f"What is {match[2] or match[3]} in {name}?"), "", match[1]) for match in found if len(match[1]) <= LONGEST]


def status_questions(name, text):
    """From the condition of an exit status to its number, and back."""
    asked = []
    for status, meaning in STATUS.findall(text):
        answer, condition = f"{status} {meaning}", first_part(meaning, SENTENCE)
        asked.append(Asked((f"What does the exit status {status} of {name} mean?", f"When does {name} exit with {status}?"), "", answer))
        asked.append(Asked((f"What is the exit status of {name}: {{}}?", f"With which status does {name} exit: {{}}?"), condition, answer))
    return asked


def command_questions(page, text):
    """Of a page's commands, which are words below its heading."""
    asked = []
    for _, command, meaning in COMMAND.findall(text):
        word = command.split()[0]
        there = (f"What does {page} {word} do?", f"What does the command {word} of {page} do?")
        back = (f"Which command of {page} does this: {{}}?", f"Which {page} command is for this: {{}}?", f"How do I do this with {page}: {{}}?")
        asked += there_and_back(command, shorten(meaning), there, back, CLAUSE)
    return asked


def prose_questions(names, found):
    """About what a page says of values, conditions, arguments, flags, errors and commands."""
    returned, described = found.get("RETURN VALUE", ""), found.get("DESCRIPTION", "")
    asked = []
    if returned:
        asked += [Asked((f"What does {name} return?", f"What is the return value of {name}?"), "", shorten(returned.strip())) for name in names]
        asked += condition_questions((f"What does {names[1]} return {{}}?", f"What is the return value of {names[1]} {{}}?"), returned)
    for name, forms in zip(reversed(names), (("What does {0} do {{}}?", "What will {0} do {{}}?"),
                                             ("What happens with {0} {{}}?", "What happens in {0} {{}}?", "What happens {{}}?"))):
        asked += condition_questions(tuple(form.format(name) for form in forms), described)
    asked += flag_questions(names[1], described) + argument_questions(names[1], described)
    asked += error_questions(names[1], found.get("ERRORS", "")) + status_questions(names[0], found.get("EXIT STATUS", ""))
    return asked + command_questions(names[1], found.get("COMMANDS", ""))


def derive_questions(text):
    """[Asked] of a manual page, in its order; none of any other text."""
    found = sections(text)
    name = NAME.search(found.get("NAME", ""))
    if not name:
        return []
    page, purpose = name[1].split(",")[0], name[2].strip().rstrip(".")
    asked = [Asked((f"What is {page}?", f"What is {page} for?", f"What does {page} do?"), "", f"{page} - {purpose}"),
             Asked(("Which manual is about this: {}?", "Which command or call is for this: {}?"), purpose, page)]
    names = spoken_names(page, found.get("SYNOPSIS", ""))
    body = "\n".join(part for heading, part in found.items() if heading not in ("NAME", "SYNOPSIS"))
    for i, (_, option, meaning) in enumerate(OPTION.findall(body)):
        asked += option_questions(names[i % 2], option.strip(), shorten(meaning))
    asked += prose_questions(names, found)
    kept = {}  # the first of an error that a page has several times
    for one in asked:
        if one.answer:
            kept.setdefault(one.first()[0], one)
    return list(kept.values())


def questions_of(text):
    """[(question, answer)] of a manual page, as the rules put them."""
    return [asked.first() for asked in derive_questions(text)]


def choose(asked, count):
    """At most count of a page's Asked, by the hash of the question."""
    rank = sorted(asked, key=lambda one: hashlib.sha256(one.first()[0].encode()).digest())[:count]
    return [one for one in asked if one in rank]


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
    """QuestionChunks of at most count questions of each of [(name, text)], in several wordings, without those whose file is named in left_out."""
    chunks = QuestionChunks()
    for name, text in documents:
        if Path(name).name.removesuffix(".txt") in left_out:
            continue
        for asked in choose(derive_questions(text), count):
            for question, answer in dict.fromkeys([asked.first(), *(asked.other(copy) for copy in range(OTHERS))]):
                add_pair(chunks, name, text, question, answer, vocabulary, m, eod)
    return chunks
