"""Tokenizers as the folders of decoder families hold them in tokenizer.json, trained small: pipelines(texts) yields
(name, tokenizer, flags). make_tokenizer_fixtures.py writes what they make of its texts."""

import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

PLAIN, PARSE_SPECIAL, ADD_SPECIAL = 0, 1, 2
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
# OLMo2's and Granite's: cl100k of tiktoken, with possessive repeats.
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
# o200k of tiktoken, as Phi-4 and Llama 4 have it.
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTES = [f"<0x{b:02X}>" for b in range(256)]


def special(*names, **flags):
    return [AddedToken(n, special=True, normalized=False, **flags) for n in names]


def template(t, before):
    return processors.TemplateProcessing(
        single=f"{before} $A", pair=f"{before} $A $B", special_tokens=[(before, t.token_to_id(before))])


def text_bpe(sample, names, options):
    """BPE of characters, with what a SentencePiece model has: marks, bytes where asked for, pieces with ▁ for spaces."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(sample, trainers.BpeTrainer(
        vocab_size=900, limit_alphabet=options.pop("alphabet", 120), show_progress=False))
    model = json.loads(trained.to_str())["model"]
    marks = list(names) + options.pop("bytes", BYTES)
    vocab = {n: i for i, n in enumerate(marks)}
    for piece in sorted(model["vocab"], key=model["vocab"].get):
        vocab.setdefault(piece, len(vocab))
    merges = [tuple(m) for m in model["merges"]]
    options = {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>", **options}
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges, **options))
    t.add_special_tokens(special(*names))
    return t


def sentence_piece_steps(strip):
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))


def prepend_and_replace():
    return normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])


def text_kinds(sample):
    marks = ["<unk>", "<s>", "</s>"]

    llama2 = text_bpe(sample, marks, {})
    llama2.normalizer = prepend_and_replace()
    llama2.decoder = sentence_piece_steps(strip=True)
    llama2.post_processor = template(llama2, "<s>")
    llama2.enable_truncation(64)  # what folders of embedders and of older training runs keep; no text is cut by it
    llama2.enable_padding(length=128)
    yield "llama2", llama2, PARSE_SPECIAL | ADD_SPECIAL

    # What transformers 5 makes of tokenizer.model, and Mistral v3.
    metaspace = text_bpe(sample, marks, {})
    metaspace.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    metaspace.decoder = sentence_piece_steps(strip=True)
    metaspace.add_special_tokens(special("<|begin|>", "<|end|>"))
    yield "metaspace-first", metaspace, PARSE_SPECIAL

    cut = text_bpe(sample, marks, {"fuse_unk": False})
    cut.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    cut.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")])
    yield "metaspace-split", cut, PLAIN

    phi3 = text_bpe(sample, marks, {})
    phi3.normalizer = prepend_and_replace()
    phi3.decoder = sentence_piece_steps(strip=True)
    phi3.add_special_tokens(special("<|begin|>", "<|end|>", "<|endoftext|>", rstrip=True))
    yield "phi3", phi3, PARSE_SPECIAL

    gemma = text_bpe(sample, ["<pad>", "<eos>", "<bos>", "<unk>"], {})
    gemma.normalizer = normalizers.Replace(" ", "▁")
    gemma.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    gemma.decoder = sentence_piece_steps(strip=False)
    gemma.post_processor = template(gemma, "<bos>")
    gemma.add_tokens([AddedToken(n, normalized=False) for n in ("\n\n", "\n\n\n", "▁▁", "▁▁▁▁", "<code>")])
    yield "gemma", gemma, PARSE_SPECIAL | ADD_SPECIAL

    # No bytes to fall back to: unknown tokens, each by itself and fused, and with a few bytes alone.
    for name, options in (("unknown", {"byte_fallback": False, "fuse_unk": False, "bytes": []}),
                          ("unknown-fused", {"byte_fallback": False, "bytes": []}),
                          ("some-bytes", {"bytes": BYTES[0xC3:0xC4] + BYTES[0xA0:0xB0]}),
                          ("ignore-merges", {"ignore_merges": True, "bytes": []})):
        t = text_bpe(sample, ["<unk>"], {"alphabet": 50, **options})
        t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Replace(" ", "▁")])
        t.pre_tokenizer = pre_tokenizers.BertPreTokenizer() if name == "ignore-merges" else None
        t.decoder = sentence_piece_steps(strip=False)
        yield name, t, PLAIN


def byte_bpe(sample, pre, normalizer=None, marks=("<|endoftext|>",), post=None, size=900):
    t = Tokenizer(models.BPE())
    t.normalizer = normalizer
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(sample, trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.add_special_tokens(special(*marks))
    t.post_processor = post or processors.ByteLevel(trim_offsets=False)
    return t


def regex_then_bytes(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def byte_kinds(sample):
    level = pre_tokenizers.ByteLevel(add_prefix_space=False)

    neox = byte_bpe(sample, level, normalizers.NFC())
    neox.add_tokens([AddedToken(" " * n, normalized=True) for n in (2, 3, 4, 8)])
    yield "gpt-neox", neox, PARSE_SPECIAL

    yield "starcoder2", byte_bpe(sample, pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), level])), PARSE_SPECIAL

    yield "olmo2", byte_bpe(sample, regex_then_bytes(CL100K)), PARSE_SPECIAL
    yield "o200k", byte_bpe(sample, regex_then_bytes(O200K)), PARSE_SPECIAL

    qwen3 = byte_bpe(sample, regex_then_bytes(LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")), normalizers.NFC(),
                     ["<|endoftext|>", "<|begin|>", "<|end|>"])
    qwen3.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False),
                      AddedToken("don't", single_word=True, normalized=True)])
    yield "qwen3", qwen3, PARSE_SPECIAL

    smollm3 = byte_bpe(sample, regex_then_bytes(LLAMA3), marks=["<|begin|>", "<|end|>"])
    smollm3.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template(smollm3, "<|begin|>")])
    yield "smollm3", smollm3, PARSE_SPECIAL | ADD_SPECIAL

    # Every behaviour of Split, both ways round.
    for invert in (False, True):
        splits = [pre_tokenizers.Split(pattern, behaviour, invert=invert) for pattern, behaviour in (
            (Regex(r"[\r\n]+"), "isolated"), ("e", "merged_with_previous"), (Regex("[aou]"), "merged_with_next"),
            (Regex(r"\p{N}"), "contiguous"), *([] if invert else [(Regex("[qxz]"), "removed")]))]
        yield ("splits-inverted" if invert else "splits"), byte_bpe(sample, pre_tokenizers.Sequence([*splits, level])), PLAIN

    yield "punctuation", byte_bpe(sample, pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Digits(), level])), PLAIN
    yield "whitespace", byte_bpe(sample, pre_tokenizers.Sequence([
        pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation(),
        pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)])), PLAIN


def pipelines(texts):
    sample = [t.decode("utf-8", "replace")[:20000] for t in texts[:8]]
    yield from text_kinds(sample)
    yield from byte_kinds(sample)
