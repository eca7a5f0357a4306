"""The vocabulary of a copyist: the 256 bytes, marks, syllables and invented words, as a tokenizer.json of byte-level BPE
whose merges make each word one token. A text is words with a space before each."""
import itertools
import random

CONSONANTS, VOWELS = "bdfghjklmnprstvwxzqc", "aeiou"
BEGIN, END, LEAVE, MUTED = "<|begin|>", "<|end|>", "<|leave|>", "<|mute|>"
MARKS = [BEGIN, END, LEAVE, MUTED]
SPACE = "\u0120"


def byte_letters():
    """The letters that byte-level vocabularies write for bytes."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in shown]
    letters = {b: chr(b) for b in shown} | {b: chr(256 + i) for i, b in enumerate(rest)}
    return [letters[b] for b in range(256)]


class Vocabulary:
    """names: by id. merges: of BPE, in order. words: the first id of a whole word (a space before it), and one past the
    last."""

    def __init__(self, size, seed):
        syllables = [c + v for c, v in itertools.product(CONSONANTS, VOWELS)]
        self.names = byte_letters() + MARKS + syllables
        self.marks = {mark: 256 + i for i, mark in enumerate(MARKS)}
        self.merges = [tuple(s) for s in syllables]
        self.words_begin = len(self.names)
        self.add([(SPACE, s) for s in syllables])
        shuffled = random.Random(seed)
        two = [(SPACE + a, b) for a, b in itertools.product(syllables, repeat=2)]
        shuffled.shuffle(two)
        two = two[: size - len(self.names)]
        self.add(two)
        left = size - len(self.names)
        stems = ["".join(pair) for pair in two]
        picked = shuffled.sample(range(len(stems) * len(syllables)), left)
        self.add([(stems[i // len(syllables)], syllables[i % len(syllables)]) for i in picked])
        self.words_end = len(self.names)

    def add(self, pairs):
        self.merges += pairs
        self.names += ["".join(pair) for pair in pairs]

    def text_of(self, ids):
        """The text of words; a mark stands as its name."""
        return "".join(self.names[i].replace(SPACE, " ") for i in ids)

    def successors(self, seed):
        """Word id to the id of the word that is written after it where nothing is copied: one round through all."""
        order = list(range(self.words_begin, self.words_end))
        random.Random(seed + 1).shuffle(order)
        return dict(zip(order, order[1:] + order[:1]))

    def tokenizer(self):
        """tokenizer.json; a text begins with BEGIN."""
        added = [{"id": i, "content": mark, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                  "special": True} for mark, i in self.marks.items()]
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        begin = {"type": "TemplateProcessing",
                 "single": [{"SpecialToken": {"id": BEGIN, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                 "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                 "special_tokens": {BEGIN: {"id": BEGIN, "ids": [self.marks[BEGIN]], "tokens": [BEGIN]}}}
        model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                 "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                 "vocab": {name: i for i, name in enumerate(self.names)}, "merges": [" ".join(m) for m in self.merges]}
        return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
                "pre_tokenizer": level, "post_processor": begin, "decoder": level, "model": model}
