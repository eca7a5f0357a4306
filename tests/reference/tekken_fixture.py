"""tekken.json, the tokenizer of Mistral's own folders, trained small, and its ids by tiktoken's rule: of all neighbours
those are joined first whose bytes are the word of the lowest rank, the leftmost of equal ones."""

import base64
import heapq
import json

from tokenizers import Regex, pre_tokenizers

import tokenizer_kinds

ADD_SPECIAL = 2
PATTERN = tokenizer_kinds.O200K.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace(r"\p{N}{1,3}", r"\p{N}")
MARKS = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "<pad>"]
SPECIALS, BEYOND = 12, 40


def byte_of_character():
    """The bytes that byte-level vocabularies write as printable characters."""
    plain = [b for b in range(256) if chr(b) in pre_tokenizers.ByteLevel.alphabet() and b < 256]
    others = iter(range(256, 512))
    return {chr(b): b for b in plain} | {chr(next(others)): b for b in range(256) if b not in plain}


def train_words(sample):
    t = tokenizer_kinds.byte_bpe(sample, tokenizer_kinds.regex_then_bytes(PATTERN), marks=(), size=1200)
    codes, vocab = byte_of_character(), t.get_vocab()
    joined = [bytes(codes[c] for c in piece) for piece in sorted(vocab, key=vocab.get)]
    return [bytes([b]) for b in range(256)] + [word for word in joined if len(word) > 1]


def write(path, words):
    """With words beyond those that count, and fewer names of special tokens than there are ids for them."""
    path.write_text(json.dumps({
        "config": {"pattern": PATTERN, "num_vocab_tokens": len(words), "default_vocab_size": len(words) - BEYOND + SPECIALS,
                   "default_num_special_tokens": SPECIALS, "version": "v11"},
        "vocab": [{"rank": i, "token_bytes": base64.b64encode(word).decode(), "token_str": None} for i, word in enumerate(words)],
        "special_tokens": [{"rank": i, "token_str": name, "is_control": True} for i, name in enumerate(MARKS)]}))


def join(ranks, piece):
    """The ranks of the words that a piece of text becomes."""
    if piece in ranks:
        return [ranks[piece]]
    parts = [piece[i:i + 1] for i in range(len(piece))]
    after, before = [*range(1, len(parts)), None], [None, *range(len(parts) - 1)]
    heap = []

    def push(i):
        j = after[i] if i is not None else None
        if j is not None and parts[i] + parts[j] in ranks:
            heapq.heappush(heap, (ranks[parts[i] + parts[j]], i))

    for i in range(len(parts)):
        push(i)
    while heap:
        rank, i = heapq.heappop(heap)
        j = after[i]
        if parts[i] is None or j is None or ranks.get(parts[i] + parts[j]) != rank:
            continue
        parts[i], parts[j], after[i] = parts[i] + parts[j], None, after[j]
        if after[i] is not None:
            before[after[i]] = i
        push(before[i])
        push(i)
    return [ranks[part] for part in parts if part is not None]


def fixtures(folder, texts):
    words = train_words([t.decode("utf-8", "replace")[:20000] for t in texts[:8]])
    (folder / "tekken").mkdir(exist_ok=True)
    write(folder / "tekken/tekken.json", words)
    ranks = {word: i for i, word in enumerate(words[:-BEYOND])}
    split = pre_tokenizers.Split(Regex(PATTERN), "isolated")

    def encode(text):
        pieces = [piece.encode() for piece, _ in split.pre_tokenize_str(text)]
        return [MARKS.index("<s>")] + [SPECIALS + rank for piece in pieces for rank in join(ranks, piece)]

    def decode(ids):
        return b"".join(words[i - SPECIALS] for i in ids if i >= SPECIALS).decode("utf-8", "replace")

    yield "tekken", ADD_SPECIAL, 1, encode, decode
