"""Trains small tokenizers with the reference libraries and writes what they make of real text and of Unicode torture:
python make_tokenizer_fixtures.py FOLDER MINILM SIZE, where SIZE is "some" (240 KB of real text, long words of thousands
of characters: seconds) or "whole" (a megabyte, long words of a megabyte: ten minutes).

FOLDER/texts.bin        u32 count, then per text u32 size and the bytes (not always UTF-8)
FOLDER/NAME/            a model folder, as tokenizer_open takes it
FOLDER/NAME.ids         u32 flags (enum tokenizer_flags), u32 round_trip, then per text u32 n and n i32 ids
FOLDER/NAME.decoded     per text u32 size and the reference's decoding of those ids, specials left out; not for WordPiece
All numbers are little-endian. Invalid UTF-8 is given to the libraries as bytes.decode("utf-8", "replace").
"""

import json
import pathlib
import random
import re
import shutil
import struct
import sys
import sysconfig
import time

import sentencepiece
import tekken_fixture
import tokenizer_kinds
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLAIN, PARSE_SPECIAL, ADD_SPECIAL = tokenizer_kinds.PLAIN, tokenizer_kinds.PARSE_SPECIAL, tokenizer_kinds.ADD_SPECIAL
LLAMA3 = tokenizer_kinds.LLAMA3
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def real_texts(wanted):
    """At least `wanted` bytes of what every Debian with Python has."""
    folders = [sysconfig.get_paths()["stdlib"], "/usr/share/common-licenses", "/usr/share/perl"]
    texts, size = [], 0
    for folder, pattern in zip(folders, ("*.py", "*", "**/*.pod")):
        share = 0
        for path in sorted(pathlib.Path(folder).glob(pattern)):
            if path.is_file() and share < wanted // 2:
                texts.append(path.read_bytes())
                share += len(texts[-1])
        size += share
    if size < wanted:
        raise SystemExit(f"only {size} bytes of text found in {folders}, {wanted} wanted")
    return texts


def torture_texts(whole):
    """whole: words as long as a text may be, else long enough to leave every fixed size behind."""
    rng = random.Random(7)
    words = [
        "", " ", "  ", "\n", "\r\n", "\r", "a\r\nb\rc\n\n\nd", "\t\t x", "\0", "a\0b", "\u2028x\u2029", "e\u0301\u0323\u0301",
        "\u1e9b\u0323 \ufb01 \u2460 \u00bd", "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽", "🇩🇪🇫🇷🇯", "漢字かな交じり文。日本語 中文,테스트", "\u1112\u1161\u11ab\u1100\u1173\u11af",
        "한글 음절", "שלום עולם", "مرحبا بالعالم ١٢٣", "a\u200bb\u200cc\u200dd\ufeffe", "\ue000\uf8ff", "\U000f0000",
        "\u0378\u0530\U0001fffe\uffff", "İstanbul ıI i̇", "Straße STRASSE ẞ", "ΟΔΥΣΣΕΥΣ Σ ς", "ſ ’ſ 'ſ 'S 'LL I'M we'Re",
        "K\u212a Å\u212b", "\u180e \u00a0\u1680\u2003\u3000x", "a\u00adb", "x\u0085y", "١٢٣٤ ²³ Ⅷ ½ 12345678 1,000.50", "don't can't",
        "naïve café ÀÉÎ", "ǅ ǆ Ǆ", "\u0345\u0344", "नमस्ते दुनिया", "ไทยภาษา", "<0x0A> ▁ ▁▁x", "<|endoftext|>", "x <|endoftext|> y",
        "<|begin|>hi<|end|>  tail", "foo  <pad>  bar", "aword b word c", "<s> </s> <unk>", "[CLS] a [SEP] [MASK]b [UNK]", "ĠĊ Ġ",
        " leading", "trailing ", "a" * 101, "b" * 100, "!!!???...", "$+<=>^`|~", "©®™€£¥§¶", "\u3002\uff01\uff1f", "#hash_tag a_b __init__",
        "\U0002a6df\U0002b820\U0002b920\u9fff", "\ufffd", "\x7f\x01\x1f", "\U0001d165\U0001d16d", "ਸਤ\u0a4d", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟘𝟙",
        "Thank you <extra_id_0> me to<extra_id_1>your party  <extra_id_99> .<extra_id_100> <extra_id_007>", "a <mask>b",
        "e\u0301\u200d ｆｕｌｌ　ｗｉｄｔｈ ﷺ ｶﾞ \u0600\u0661 \u0915\u094d\u0937 \u1100\u1161", "\r\n\u0301 \u00a0\u3000",
    ]
    texts = [w.encode() for w in words]
    texts += [b"\xff", b"a\x80b", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xf0\x9f\x98x", b"\xc0\xaf", b"\xed\xa0\x80",
              b"\xf4\x90\x80\x80", b"\xe0\x80\x80", b"ok\xe2\x28\xa1ok", b"\xf8\x88\x80\x80\x80", b"\xc3\xa9\xc3"]
    for _ in range(150 if whole else 40):
        texts.append("".join(rng.choice(words) + rng.choice(["", " ", "\n"]) for _ in range(12)).encode())
        texts.append(bytes(rng.choice(b"ab \x80\xbf\xc3\xe2\x82\xac\xf0\x9f\xed\xff") for _ in range(40)))
    # Characters of the Basic Multilingual Plane that Unicode 13 had, in a stride, so every script is met.
    assigned = [chr(c) for c in range(0x20, 0x3100) if not 0xD800 <= c < 0xE000]
    texts += ["".join(assigned[i : i + 64]).encode() for i in range(0, len(assigned), 64)]
    long = 1000 if whole else 10
    texts += ["".join(rng.choices("abcdefghij", k=1024 * long)).encode(), b"a" * 300 * long, b" " * 200 * long + b"x",
              ("é" * 100 * long).encode(), ("\u0301\u0323" * 2000).encode(), b"x, " * 50 * long]
    return texts


def byte_level(texts, vocab_size, pre, normalizer=None, specials=(), added=(), post=None, ignore_merges=False):
    t = Tokenizer(models.BPE())
    t.normalizer = normalizer
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=list(specials), show_progress=False)
    t.train_from_iterator(texts, trainer)
    t.add_tokens(list(added))
    if post:
        t.post_processor = post(t)
    if ignore_merges:
        j = json.loads(t.to_str())
        j["model"]["ignore_merges"] = True
        t = Tokenizer.from_str(json.dumps(j))
    return t


def split_regex(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def template(t):
    bos = t.token_to_id("<|begin|>")
    return processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin|> $A", pair="<|begin|> $A $B", special_tokens=[("<|begin|>", bos)])])


def hugging_face(folder, texts, minilm):
    sample = [t.decode("utf-8", "replace") for t in texts[:6]]
    added = [AddedToken("<pad>", lstrip=True, rstrip=True, normalized=False), AddedToken("word", single_word=True)]
    save = {
        "gpt2": (byte_level(sample, 2000, pre_tokenizers.ByteLevel(add_prefix_space=True), specials=["<|endoftext|>"],
                            added=added), PARSE_SPECIAL, 0),
        "llama3": (byte_level(sample, 2000, split_regex(LLAMA3), specials=["<|begin|>", "<|end|>"], added=added,
                              post=template, ignore_merges=True), PARSE_SPECIAL | ADD_SPECIAL, 0),
        "qwen2": (byte_level(sample, 1500, split_regex(QWEN2), normalizers.NFC(), ["<|endoftext|>"]), PLAIN, 0),
        "digits": (byte_level(sample, 1000, pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Split(",", "merged_with_previous"),
            pre_tokenizers.ByteLevel(add_prefix_space=False)]), normalizers.Sequence([
                normalizers.Replace("don't", "do not"), normalizers.NFKD(), normalizers.Lowercase()]),
            ["<|endoftext|>"]), PLAIN, 0),
        "retro-docs": (Tokenizer.from_file(str(ROOT / "models/retro-docs/tokenizer.json")), PLAIN, 1),
        "minilm": (Tokenizer.from_file(str(minilm / "tokenizer.json")), PARSE_SPECIAL | ADD_SPECIAL, 0),
    }
    for name, (t, flags, round_trip) in save.items():
        (folder / name).mkdir(exist_ok=True)
        t.no_truncation()
        t.no_padding()
        t.save(str(folder / name / "tokenizer.json"))
        t.encode_special_tokens = not flags & PARSE_SPECIAL
        yield (name, flags, round_trip, lambda text, t=t, f=flags: t.encode(text, add_special_tokens=bool(f & ADD_SPECIAL)).ids,
               None if name == "minilm" else lambda ids, t=t: t.decode(ids, skip_special_tokens=True))
        if name == "minilm":
            # The same vocabulary as a plain list of words, cased.
            (folder / "vocab").mkdir(exist_ok=True)
            shutil.copy(minilm / "vocab.txt", folder / "vocab")
            (folder / "vocab/tokenizer_config.json").write_text('{"do_lower_case": false, "strip_accents": null}')
            t.normalizer = normalizers.BertNormalizer(lowercase=False)
            yield "vocab", flags, 0, lambda text, t=t: t.encode(text, add_special_tokens=True).ids, None


def write_sample(folder, texts):
    sample = folder / "sample.txt"
    sample.write_bytes(b"".join(texts[:6]).decode("utf-8", "replace").replace("\0", "").encode())
    return sample


def train_t5(folder, texts):
    """spiece.model with T5's ids: <pad> 0, </s> 1, <unk> 2, no <s>; beside it what its folders on the Hub say."""
    (folder / "spiece").mkdir(exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        input=str(write_sample(folder, texts)), model_prefix=str(folder / "spiece/spiece"), vocab_size=1200,
        minloglevel=2, num_threads=2, model_type="unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    (folder / "spiece/spiece.vocab").unlink()
    (folder / "spiece/tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer", "extra_ids": 100}')
    return folder / "spiece/spiece.model"


def read_charsmap(model):
    """precompiled_charsmap of a ModelProto: field 2 of field 3, wire format by hand."""
    def fields(data):
        at = 0

        def varint():
            nonlocal at
            value = shift = 0
            while True:
                value |= (data[at] & 0x7F) << shift
                shift, at = shift + 7, at + 1
                if data[at - 1] < 0x80:
                    return value

        while at < len(data):
            key = varint()
            size = {0: 0, 1: 8, 5: 4}.get(key & 7)
            if key & 7 == 0:
                varint()
            size = varint() if size is None else size
            yield key >> 3, data[at : at + size]
            at += size

    normalizer = dict(fields(model.read_bytes()))[3]
    return dict(fields(normalizer))[2]


def unigrams(folder, texts):
    """tokenizer.json of Unigram as transformers writes it: T5 of the Hub, a newer conversion with bytes, XLM-R."""
    model = train_t5(folder, texts)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    vocab = [(pieces.id_to_piece(i), pieces.get_score(i)) for i in range(len(pieces))]
    charsmap = normalizers.Precompiled(read_charsmap(model))
    sentinels = [f"<extra_id_{i}>" for i in reversed(range(100))]

    def special(t, names, **flags):
        t.add_special_tokens([AddedToken(n, special=True, normalized=False, **flags) for n in names])

    def wrap(t, before, after):
        marks = [(n, t.token_to_id(n)) for n in before + after]
        t.post_processor = processors.TemplateProcessing(single=[*before, "$A", *after], special_tokens=marks)

    t5 = Tokenizer(models.Unigram(vocab + [(s, 0.0) for s in sentinels], unk_id=2))
    t5.normalizer = charsmap
    t5.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    t5.decoder = decoders.Metaspace()
    special(t5, ["<pad>", "</s>", "<unk>"] + sentinels)
    wrap(t5, [], ["</s>"])

    # Trained by the other library, whose scores are no floats.
    new = Tokenizer(models.Unigram())
    new.normalizer = normalizers.Sequence([
        charsmap, normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")])
    new.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    byte_names = [f"<0x{b:02X}>" for b in range(256)]
    new.train_from_iterator([t.decode("utf-8", "replace") for t in texts[:6]], trainers.UnigramTrainer(
        vocab_size=1500, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False))
    j = json.loads(new.to_str())
    j["model"]["vocab"] += [[n, -30.0] for n in byte_names]
    j["model"]["byte_fallback"] = True
    new = Tokenizer.from_str(json.dumps(j))
    new.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
    new.add_tokens([AddedToken("ｗord", single_word=True)])

    xlmr_vocab = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *vocab[3:], ("<mask>", 0.0)]
    xlmr = Tokenizer(models.Unigram(xlmr_vocab, unk_id=3))
    xlmr.normalizer = charsmap
    xlmr.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    xlmr.decoder = decoders.Metaspace()
    special(xlmr, ["<s>", "<pad>", "</s>", "<unk>"])
    special(xlmr, ["<mask>"], lstrip=True)
    wrap(xlmr, ["<s>"], ["</s>"])

    for name, t, flags in (("t5", t5, PARSE_SPECIAL | ADD_SPECIAL), ("unigram-bytes", new, PARSE_SPECIAL),
                           ("xlm-r", xlmr, PARSE_SPECIAL | ADD_SPECIAL)):
        (folder / name).mkdir(exist_ok=True)
        t.save(str(folder / name / "tokenizer.json"))
        t.encode_special_tokens = not flags & PARSE_SPECIAL
        yield (name, flags, 0, lambda text, t=t: t.encode(text).ids,
               lambda ids, t=t: t.decode(ids, skip_special_tokens=True))

    # T5Tokenizer of transformers 4: special tokens are cut out, the library encodes what is between them.
    cut = re.compile(r"\s*(<extra_id_(?:\d|[1-9]\d)>)\s*|(<pad>|</s>|<unk>)")
    special_ids = {n: len(pieces) + 99 - i for i, n in enumerate(reversed(sentinels))}
    special_ids.update({"<pad>": 0, "</s>": 1, "<unk>": 2})

    def encode(text):
        parts = [p for p in cut.split(text) if p]
        ids = [[special_ids[p]] if p in special_ids else pieces.encode(p) for p in parts]
        return sum(ids, []) + [1]

    # The same as newer versions write it: special tokens by id, and the kind of model in config.json alone.
    (folder / "spiece-listed").mkdir(exist_ok=True)
    shutil.copy(model, folder / "spiece-listed")
    (folder / "spiece-listed/config.json").write_text('{"model_type": "t5"}')
    (folder / "spiece-listed/tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": {
        i: dict(content=n, special=True, lstrip=n in sentinels, rstrip=n in sentinels, normalized=False)
        for n, i in special_ids.items()}}))
    for name in ("spiece", "spiece-listed"):
        yield (name, PARSE_SPECIAL | ADD_SPECIAL, 0, encode,
               lambda ids: pieces.decode([i for i in ids if 2 < i < len(pieces)]))


def sentence_pieces(folder, texts):
    sample = write_sample(folder, texts)
    options = {
        "unigram": dict(model_type="unigram", byte_fallback=True, user_defined_symbols=["<pad>", "don't"]),
        "spm-bpe": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                        remove_extra_whitespaces=False),
        "spm-plain": dict(model_type="unigram", byte_fallback=False, add_dummy_prefix=False),
    }
    for name, option in options.items():
        (folder / name).mkdir(exist_ok=True)
        sentencepiece.SentencePieceTrainer.train(
            input=str(sample), model_prefix=str(folder / name / "tokenizer"), vocab_size=1200, minloglevel=2,
            num_threads=2, **option)
        s = sentencepiece.SentencePieceProcessor(model_file=str(folder / name / "tokenizer.model"))
        yield name, PLAIN, 0, s.encode, s.decode


def real_parts(whole):
    """The libraries and the trainers see the beginnings of six files, or a megabyte of them."""
    texts = real_texts(1 << 20)
    return texts if whole else [t[:40000] for t in texts[:: max(1, len(texts) // 6)]][:6]


def families(texts):
    """(name, model's tokenizer.json, flags) of tokenizer_kinds as the other families are given."""
    def yield_kinds(folder):
        for name, t, flags in tokenizer_kinds.pipelines(texts):
            (folder / name).mkdir(exist_ok=True)
            t.save(str(folder / name / "tokenizer.json"))
            t.no_truncation()
            t.no_padding()
            t.encode_special_tokens = not flags & PARSE_SPECIAL
            yield (name, flags, 0, lambda text, t=t, f=flags: t.encode(text, add_special_tokens=bool(f & ADD_SPECIAL)).ids,
                   lambda ids, t=t: t.decode(ids, skip_special_tokens=True))
    return yield_kinds


def write_fixture(folder, fixture, repaired):
    name, flags, round_trip, encode, decode = fixture
    with open(folder / f"{name}.ids", "wb") as f, open(folder / f"{name}.decoded", "wb") as d:
        f.write(struct.pack("<II", flags, round_trip))
        for text in repaired:
            ids = encode(text)
            f.write(struct.pack(f"<I{len(ids)}i", len(ids), *ids))
            if decode:
                back = decode(ids).encode()
                d.write(struct.pack("<I", len(back)) + back)
    if not decode:
        (folder / f"{name}.decoded").unlink()


def main():
    folder, minilm, size = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    whole = {"some": False, "whole": True}[size]
    folder.mkdir(parents=True, exist_ok=True)
    sample = real_texts(1 << 20)
    texts = real_parts(whole) + torture_texts(whole)
    with open(folder / "texts.bin", "wb") as f:
        f.write(struct.pack("<I", len(texts)))
        for text in texts:
            f.write(struct.pack("<I", len(text)) + text)
    repaired = [t.decode("utf-8", "replace") for t in texts]
    for fixtures in (hugging_face(folder, sample, minilm), unigrams(folder, sample), sentence_pieces(folder, sample),
                     families(sample)(folder), tekken_fixture.fixtures(folder, sample)):
        for fixture in fixtures:
            started = time.time()
            write_fixture(folder, fixture, repaired)
            print(f"{fixture[0]}: {time.time() - started:.1f} s", flush=True)
    versions = f"tokenizers {tokenizers.__version__}, sentencepiece {sentencepiece.__version__}"
    (folder / "complete").write_text(versions + "\n")


if __name__ == "__main__":
    main()
