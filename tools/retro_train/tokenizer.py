"""Byte-level BPE: training, and what the rest asks of a tokenizer. The server reads the same tokenizer.json."""

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END = "<|endoftext|>"


def train(texts, vocab_size):
    """A tokenizer of at most vocab_size ids; id 0 ends a document. Bytes never seen still have their ids."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=[END], show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


class Vocabulary:
    """Text to ids and back, with the byte length of every id."""

    def __init__(self, path):
        self.tokenizer = Tokenizer.from_file(str(path))
        self.tokenizer.encode_special_tokens = True  # in a document "<|endoftext|>" is ordinary text
        special = {i: t.content for i, t in self.tokenizer.get_added_tokens_decoder().items()}
        self.size = self.tokenizer.get_vocab_size()
        # A byte-level token is spelled with one character per byte.
        names = (special.get(i, self.tokenizer.id_to_token(i)) for i in range(self.size))
        self.bytes = np.array([len(name.encode()) if i in special else len(name) for i, name in enumerate(names)])
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        if not all(c in alphabet for i in range(self.size) if i not in special for c in self.tokenizer.id_to_token(i)):
            raise ValueError(f"{path}: not a byte-level BPE tokenizer")

    def encode(self, text):
        return np.array(self.tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int64)

    def decode(self, ids):
        return self.tokenizer.decode([int(i) for i in ids], skip_special_tokens=True)
