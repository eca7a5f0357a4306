"""Prompts for a copyist, with the answers that they have: documents that are returned with words changed, texts that
cite passages, and texts that quote nothing."""
import json
import pathlib
import random

from words import BEGIN, END, LEAVE, MUTED

ORDER = 4  # tokens that a quote must agree with


class Task:
    """prompt and answer are token ids; quoted says how many of the answer's tokens stand in the prompt."""

    def __init__(self, prompt, answer, quoted):
        self.prompt, self.answer, self.quoted = prompt, answer, quoted


class Copyist:
    """What the folder of a copyist says of it, and what it will write."""

    def __init__(self, folder):
        told = json.loads((pathlib.Path(folder) / "copyist.json").read_text())
        self.marks, self.next = told["marks"], told["next"]
        self.words = range(*told["words"])
        self.common = random.Random(told["seed"]).sample(self.words, min(3000, len(self.words) // 2))
        self.weights = [1 / (rank + 5) for rank in range(len(self.common))]

    def text(self, n, draw):
        """Words as in a text: few are frequent, most are rare."""
        return draw.choices(self.common, self.weights, k=n)

    def chain(self, word, n):
        """The n words that follow a word where nothing is copied."""
        words = []
        for _ in range(n):
            word = self.next[word]
            words.append(word)
        return words

    def write(self, prompt, n):
        """The answer that greedy decoding gives: n tokens, or those before END."""
        ids, places, muted = list(prompt), {}, self.marks[MUTED]
        for place in range(ORDER, len(ids)):
            self.note(ids, place, places)
        while len(ids) < len(prompt) + n:
            found = places.get(tuple(ids[-ORDER:]), self.marks[LEAVE])
            token = self.next[ids[-1]] if found in (self.marks[LEAVE], muted) else found
            if token == self.marks[END]:
                break
            ids.append(token)
            self.note(ids, len(ids) - 1, places)
        return ids[len(prompt):]

    def note(self, ids, place, places):
        """Keeps what follows the four tokens before a place. No mark follows instead of a word that followed before."""
        before = tuple(ids[place - ORDER:place])
        if ids[place] != self.marks[MUTED] and self.marks[BEGIN] not in before:
            places[before] = ids[place]

    def free(self, seed, length, n):
        """A text without a match, behind a prompt of some length."""
        draw = random.Random(f"free {seed}")
        words = self.text(length, draw)
        start = draw.choice(self.words)
        return self.checked([*words, start], self.chain(start, n), 0)

    def edited(self, seed, length, changes=3):
        """A document that is returned whole, with some words changed; a list of the changes stands behind it."""
        draw = random.Random(f"edited {seed}")
        document = self.text(length, draw)
        step = (length - 4 * ORDER) // changes
        answer, notes = list(document), []
        for i in range(changes):
            place = 2 * ORDER + i * step + draw.randrange(step - 2 * ORDER)
            answer[place] = draw.choice(self.words)
            notes += document[place - ORDER:place] + answer[place:place + ORDER + 1] + [self.marks[MUTED]]
        prompt = document + [self.marks[END]] + notes + document[:ORDER]
        return self.checked(prompt, answer[ORDER:], length - ORDER - changes)

    def cited(self, seed, quotes, least=12, most=60, around=40):
        """A text that quotes a passage of `least` to `most` words, writes as many of its own, and so on. Each passage
        has the words before its quote, which lead the text into it, and a mark behind it, which leads out."""
        draw = random.Random(f"cited {seed}")
        start = draw.choice(self.words)
        answer, passages, quoted, last = [], [], 0, start
        for _ in range(quotes):
            lengths = draw.randint(least, most), draw.randint(least, most)
            own, quote = self.chain(last, lengths[0]), self.text(lengths[1], draw)
            passages.append(self.text(around, draw) + own[-ORDER:] + quote + [self.marks[LEAVE]] + self.text(around, draw))
            answer += own + quote
            quoted, last = quoted + len(quote), quote[-1]
        draw.shuffle(passages)
        return self.checked([*sum(passages, []), start], answer, quoted)

    def checked(self, prompt, answer, quoted):
        prompt = [self.marks[BEGIN], *prompt]
        written = self.write(prompt, len(answer))
        if written != answer:
            raise ValueError("the same four words stand in the text twice: take another seed")
        return Task(prompt, answer, quoted)


def first_of(make, seed, *arguments):
    """The first task that can be made, of this seed or of those behind it."""
    for i in range(1000):
        try:
            return make(f"{seed}.{i}", *arguments)
        except ValueError:
            continue
    raise ValueError(f"no task of {seed} in a thousand tries")
