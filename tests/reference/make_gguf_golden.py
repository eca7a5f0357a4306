"""make_gguf_golden.py PEERS OUT: the files of tests/golden/gguf: small random models as GGUF, with llama.cpp's logits and
tokens. PEERS is a folder with a build of llama.cpp and its source (bin, build-*, llama_cpp_python-*) and a virtual
environment with gguf and numpy, whose python runs this.

Reference logits are those of the dequantised model, computed by llama.cpp in f32: what the file says, without what
llama.cpp itself rounds on the way. The dequantisation is that of the package gguf."""

import pathlib
import struct
import subprocess
import sys
import tempfile

import gguf
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
F32 = gguf.GGMLQuantizationType.F32
# Where llama.cpp differs from the tokenizers that its files were made from, no text says so: it puts a space before what
# follows a token of type 4 in SentencePiece, and its expressions for tekken and gpt-4o leave combining marks out.
TEXTS = [
    "Hello world, it's 12345678 o'clock: we'LL see  two spaces,\n\n\tand a tab. ",
    "def f(x):\n    return x+1 # (a+b)$ == c^2 ~|`\r\n\r\n",
    "Élan naïve ÀÉ straße ΑΒγ ЖЗи 3½ x² don't",
    "中文字符和かなカナ、한국어。100元！",
    "  leading, <s>marks</s> <sep> and trailing   ",
    "CamelCaseWords HTTPServer iOS 1st 22nd 333rd 4444",
    "emoji 🙂🙂 é \u00a0nbsp …— “quoted”",
]


class Reference:
    """llama.cpp's answers for one file."""

    def __init__(self, program, path, *options):
        self.process = subprocess.Popen([program, path, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        text=True)

    def ask(self, *words):
        print(*words, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().rstrip("\n")

    def logits(self, ids, vocab):
        with tempfile.NamedTemporaryFile() as file:
            assert self.ask("logits", file.name, *map(int, ids)) == "written"
            return np.fromfile(file.name, "<f4").reshape(len(ids), vocab)

    def tokens(self, text, add, parse):
        return [int(i) for i in self.ask("text", int(add), int(parse), text.encode().hex()).split()]


def build_reference(peers, folder):
    source = next(peers.glob("llama_cpp_python-*/vendor/llama.cpp"))
    build = next(path for path in peers.glob("build-*") if path.is_dir())
    program = folder / "llama_reference"
    libraries = [build / "src/libllama.a", *(build / f"ggml/src/libggml{part}.a" for part in ("", "-cpu", "-base"))]
    subprocess.run(["g++", "-O1", "-std=c++17", f"-I{source}/include", f"-I{source}/ggml/include",
                    HERE / "llama_reference.cc", *libraries, "-fopenmp", "-lpthread", "-ldl", "-lm", "-o", program],
                   check=True)
    return program


def train_merges(pieces, count):
    """Byte pair encoding over lists of symbols: the merged pairs in order."""
    merges = []
    for _ in range(count):
        pairs = {}
        for piece in pieces:
            for pair in zip(piece, piece[1:]):
                pairs[pair] = pairs.get(pair, 0) + 1
        best = max(pairs, key=lambda p: (pairs[p], p), default=None)
        if best is None:
            break
        merges.append(best)
        for at, piece in enumerate(pieces):
            joined, i = [], 0
            while i < len(piece):
                pair = i + 1 < len(piece) and (piece[i], piece[i + 1]) == best
                joined.append(piece[i] + piece[i + 1] if pair else piece[i])
                i += 2 if pair else 1
            pieces[at] = joined
    return merges


def byte_characters():
    """GPT-2's printable character for each byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, extra = {b: chr(b) for b in shown}, 0
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + extra)
            extra += 1
    return table


def add_bpe(w, pre, whole_text=False):
    """Bytes, merges that know no words where whole_text, three marks."""
    table = byte_characters()
    texts = [[table[b] for b in text.encode()] for text in TEXTS]
    if not whole_text:
        texts = [[table[b] for b in word.encode()] for text in TEXTS for word in text.replace(" ", "\0 ").split("\0")]
    merges = train_merges(texts, 400 if whole_text else 120)
    tokens = [table[b] for b in range(256)] + list(dict.fromkeys(a + b for a, b in merges))
    marks = ["<s>", "</s>", "<sep>"]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(pre)
    w.add_token_list(tokens + marks)
    w.add_token_types([1] * len(tokens) + [3, 3, 4])
    w.add_token_merges([f"{a} {b}" for a, b in merges])
    w.add_bos_token_id(len(tokens))
    w.add_eos_token_id(len(tokens) + 1)
    w.add_chat_template("{{ messages[0].content }}")
    return len(tokens) + 3


def add_sentencepiece(w):
    """Control tokens, bytes, and the merges of words that begin with U+2581."""
    words = [list("▁" + word) for text in TEXTS for word in text.split(" ") if word.isprintable()]
    merged = list(dict.fromkeys(a + b for a, b in train_merges(words, 60)))
    letters = sorted({c for text in TEXTS[:3] for c in text if c.isalpha()} | {"▁"})
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + merged + letters
    kinds = [2, 3, 3] + [6] * 256 + [1] * (len(tokens) - 259)
    w.add_tokenizer_model("llama")
    w.add_token_list(tokens)
    w.add_token_types(kinds)
    w.add_token_scores([0.0] * 259 + [-float(i) for i in range(len(tokens) - 259)])
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)
    return len(tokens)


def add_wordpiece(w):
    words = ["hello", "world", "it", "o", "clock", "we", "see", "two", "a", "tab", "and", "elan", "naive", "return"]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + ["▁" + word for word in words + list(",:.'()+12345中文")]
    tokens += ["x", "s", "ll", "345", "678", "sp", "aces"]
    w.add_tokenizer_model("bert")
    w.add_token_list(tokens)
    w.add_token_types([3] * 5 + [1] * (len(tokens) - 5))
    w.add_bos_token_id(2)
    w.add_sep_token_id(3)
    w.add_unk_token_id(1)
    w.add_pad_token_id(0)
    return len(tokens)


def noise(rng, *shape, scale=None):
    gain = scale if scale else 1.1 / np.sqrt(shape[-1])
    return (gain * rng.standard_normal(shape)).astype(np.float32)


def llama_tensors(rng, s, qkv_bias=False, tied=False, factors=True):
    d, rows = s["d"], s["heads"] * s["head"]
    kv = s["kv"] * s["head"]
    t = {"token_embd.weight": noise(rng, s["vocab"], d, scale=0.6), "output_norm.weight": 1 + noise(rng, d, scale=0.2)}
    if not tied:
        t["output.weight"] = noise(rng, s["vocab"], d)
    if factors:
        t["rope_freqs.weight"] = np.linspace(1, 3, s["head"] // 2).astype(np.float32)
    for i in range(s["layers"]):
        shapes = {"attn_q": (rows, d), "attn_k": (kv, d), "attn_v": (kv, d), "attn_output": (d, rows),
                  "ffn_gate": (s["ffn"], d), "ffn_up": (s["ffn"], d), "ffn_down": (d, s["ffn"])}
        t |= {f"blk.{i}.{name}.weight": noise(rng, *shape) for name, shape in shapes.items()}
        t |= {f"blk.{i}.{name}.weight": 1 + noise(rng, d, scale=0.2) for name in ("attn_norm", "ffn_norm")}
        if qkv_bias:
            for name, n in (("attn_q", rows), ("attn_k", kv), ("attn_v", kv)):
                t[f"blk.{i}.{name}.bias"] = noise(rng, n, scale=0.2)
    return t


def gpt2_tensors(rng, s):
    d, ffn = s["d"], s["ffn"]
    t = {"token_embd.weight": noise(rng, s["vocab"], d, scale=0.3), "position_embd.weight": noise(rng, s["context"], d, scale=0.5),
         "output_norm.weight": 1 + noise(rng, d, scale=0.2), "output_norm.bias": noise(rng, d, scale=0.2)}
    for i in range(s["layers"]):
        for name, rows, cols in (("attn_qkv", 3 * d, d), ("attn_output", d, d), ("ffn_up", ffn, d), ("ffn_down", d, ffn)):
            t[f"blk.{i}.{name}.weight"] = noise(rng, rows, cols)
            t[f"blk.{i}.{name}.bias"] = noise(rng, rows, scale=0.2)
        for name in ("attn_norm", "ffn_norm"):
            t[f"blk.{i}.{name}.weight"] = 1 + noise(rng, d, scale=0.2)
            t[f"blk.{i}.{name}.bias"] = noise(rng, d, scale=0.2)
    return t


def add_shape(w, s):
    w.add_block_count(s["layers"])
    w.add_context_length(s["context"])
    w.add_embedding_length(s["d"])
    w.add_feed_forward_length(s["ffn"])
    w.add_head_count(s["heads"])
    w.add_head_count_kv(s["kv"])
    if w.arch in ("gpt2", "starcoder2"):
        w.add_layer_norm_eps(1e-5)
    else:
        w.add_layer_norm_rms_eps(1e-5)
    if w.arch != "gpt2":
        w.add_rope_freq_base(50000.0)
        w.add_key_length(s["head"])
        w.add_value_length(s["head"])
        w.add_rope_dimension_count(s["head"])


def write_model(path, s, tensors, add_tokenizer, kinds):
    """kinds: the type of a matrix by its name, and "" for the others."""
    w = gguf.GGUFWriter(path, s["architecture"])
    add_shape(w, s)
    add_tokenizer(w)
    for name, data in tensors.items():
        kind = next((k for part, k in kinds.items() if part in name), F32) if data.ndim == 2 else F32
        w.add_tensor(name, data if kind == F32 else gguf.quants.quantize(data, kind), raw_dtype=kind)
    finish(w)


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def copy_fields(w, reader, skip=()):
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture" or field.name in skip:
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        w.add_key_value(field.name, field.contents(), kind, sub_type=sub)


def write_twin(path, source):
    """The same model in f32."""
    reader = gguf.GGUFReader(source)
    w = gguf.GGUFWriter(path, reader.fields["general.architecture"].contents())
    copy_fields(w, reader, skip=("general.file_type", "general.quantization_version"))
    for t in reader.tensors:
        w.add_tensor(t.name, gguf.quants.dequantize(t.data, t.tensor_type).reshape(t.shape[::-1].tolist()).astype(np.float32))
    finish(w)


def save_tensors(path, tensors):
    import json
    header, data = {}, b""
    for name, a in tensors.items():
        raw = np.ascontiguousarray(a).tobytes()
        kind = {"float32": "F32", "int32": "I32"}[str(a.dtype)]
        header[name] = {"dtype": kind, "shape": list(a.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_cases(folder, program, vocab, rng):
    """A sequence, two of unequal lengths, and greedy tokens after a prompt."""
    with tempfile.TemporaryDirectory() as scratch:
        twin = pathlib.Path(scratch) / "twin.gguf"
        write_twin(twin, folder / "model.gguf")
        reference = Reference(program, twin)
        lengths, n = [24, 17], 24
        ids = rng.integers(3, vocab, (2, n)).astype(np.int32)
        mask = np.array([[i < length for i in range(n)] for length in lengths]).astype(np.int32)
        logits = np.zeros((2, n, vocab), np.float32)
        for i, length in enumerate(lengths):
            logits[i, :length] = reference.logits(ids[i, :length], vocab)
        prompt = rng.integers(3, vocab, 7).astype(np.int32)
        text, rows = list(prompt), []
        for _ in range(8):
            rows.append(reference.logits(text, vocab)[-1])
            text.append(int(np.argmax(rows[-1])))
    save_tensors(folder / "cases.safetensors", {
        "b2.logits": logits, "generate.logits": np.stack(rows), "b2.input_ids": ids * mask, "b2.attention_mask": mask,
        "generate.prompt": prompt, "generate.tokens": np.array(text[7:], np.int32)})


def write_tokens(path, program, model):
    """ADD PARSE HEX ID..., one text a line."""
    reference = Reference(program, model)
    with open(path, "w") as out:
        for text in TEXTS:
            for add, parse in ((0, 0), (1, 1)):
                ids = " ".join(map(str, reference.tokens(text, add, parse)))
                print(add, parse, text.encode().hex(), ids, file=out)


def make_llama(out, program, rng):
    s = dict(architecture="llama", layers=2, d=64, heads=4, kv=2, head=16, ffn=96, context=128)
    q = gguf.GGMLQuantizationType
    s["vocab"] = add_sentencepiece(gguf.GGUFWriter(None, "llama"))
    write_model(out / "model.gguf", s, llama_tensors(rng, s), add_sentencepiece,
                {"token_embd": q.F16, "output.weight": q.Q8_0, "attn_q": q.Q8_0, "attn_k": q.Q4_0, "attn_v": q.F16,
                 "attn_output": q.Q5_0, "ffn_gate": q.Q4_1, "ffn_up": q.Q4_1, "ffn_down": q.BF16})
    return s["vocab"]


def make_qwen2(out, program, rng):
    s = dict(architecture="qwen2", layers=2, d=64, heads=4, kv=2, head=16, ffn=96, context=128)
    q = gguf.GGMLQuantizationType
    s["vocab"] = add_bpe(gguf.GGUFWriter(None, "qwen2"), "qwen2")
    tensors = llama_tensors(rng, s, qkv_bias=True, tied=True, factors=False)
    write_model(out / "model.gguf", s, tensors, lambda w: add_bpe(w, "qwen2"), {"": q.Q8_0})
    return s["vocab"]


def make_gpt2(out, program, rng):
    s = dict(architecture="gpt2", layers=2, d=64, heads=4, kv=4, head=16, ffn=128, context=64)
    q = gguf.GGMLQuantizationType
    s["vocab"] = add_bpe(gguf.GGUFWriter(None, "gpt2"), "gpt-2")
    write_model(out / "model.gguf", s, gpt2_tensors(rng, s), lambda w: add_bpe(w, "gpt-2"),
                {"token_embd": q.F16, "position_embd": F32, "attn_qkv": q.Q4_0, "ffn_up": q.Q5_1, "": q.Q8_0})
    return s["vocab"]


# Relatives of llama: which norms a layer has, of vectors of which kind, and what else is written.
RELATIVES = {
    "qwen3": dict(norms=("attn_norm", "ffn_norm"), head_norms="head"),
    "olmo2": dict(norms=("post_attention_norm", "post_ffw_norm"), head_norms="whole"),
    "gemma2": dict(norms=("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"), tied=True),
    "smollm3": dict(norms=("attn_norm", "ffn_norm"), layers=4),
    "granite": dict(norms=("attn_norm", "ffn_norm")),
    "starcoder2": dict(norms=("attn_norm", "ffn_norm"), plain=True),
}


def add_relative(w, architecture):
    if architecture == "gemma2":
        w.add_sliding_window(9)
        w.add_attn_logit_softcapping(5.0)
        w.add_final_logit_softcapping(4.0)
    if architecture == "granite":
        w.add_attention_scale(0.2)
        w.add_embedding_scale(3.0)
        w.add_residual_scale(0.5)
        w.add_logit_scale(2.0)


def make_relative(out, program, rng, architecture):
    r = RELATIVES[architecture]
    s = dict(architecture=architecture, layers=r.get("layers", 2), d=32, heads=4, kv=2, head=8, ffn=64, context=128)
    s["vocab"] = add_bpe(gguf.GGUFWriter(None, architecture), "gpt-2")
    tensors = llama_tensors(rng, s, tied=r.get("tied", False), factors=False)
    for i in range(s["layers"]):
        for name in ("attn_norm", "ffn_norm"):
            del tensors[f"blk.{i}.{name}.weight"]
        sizes = {name: 32 for name in r["norms"]}
        if "head_norms" in r:
            sizes |= {"attn_q_norm": 8, "attn_k_norm": 8} if r["head_norms"] == "head" else {"attn_q_norm": 32, "attn_k_norm": 16}
        tensors |= {f"blk.{i}.{name}.weight": 1 + noise(rng, n, scale=0.2) for name, n in sizes.items()}
        if r.get("plain"):
            del tensors[f"blk.{i}.ffn_gate.weight"]
            biases = {"attn_norm": 32, "ffn_norm": 32, "attn_q": 32, "attn_k": 16, "attn_v": 16, "attn_output": 32,
                      "ffn_up": 64, "ffn_down": 32}
            tensors |= {f"blk.{i}.{name}.bias": noise(rng, n, scale=0.2) for name, n in biases.items()}
    if r.get("plain"):
        tensors["output_norm.bias"] = noise(rng, 32, scale=0.2)

    def add(w):
        add_relative(w, architecture)
        add_bpe(w, "gpt-2")

    write_model(out / "model.gguf", s, tensors, add, {"": gguf.GGMLQuantizationType.Q8_0})
    return s["vocab"]


def make_kquants(out, program, rng, peers):
    """What llama-quantize makes of an f32 model: Q4_K_M, with other types where its options put them."""
    s = dict(architecture="llama", layers=1, d=256, heads=4, kv=2, head=32, ffn=256, context=128)
    s["vocab"] = add_sentencepiece(gguf.GGUFWriter(None, "llama"))
    types = {"attn_q": "q2_K", "attn_k": "q3_K", "attn_v": "q6_K", "attn_output": "iq4_xs", "ffn_gate": "q4_K",
             "ffn_up": "q5_K", "ffn_down": "iq4_nl"}
    with tempfile.TemporaryDirectory() as scratch:
        wide = pathlib.Path(scratch) / "f32.gguf"
        write_model(wide, s, llama_tensors(rng, s), add_sentencepiece, {})
        options = [word for name, kind in types.items() for word in ("--tensor-type", f"{name}={kind}")]
        subprocess.run([peers / "bin/llama-quantize", *options, "--token-embedding-type", "q4_K", "--output-tensor-type", "q6_K",
                        wide, out / "model.gguf", "Q4_K_M"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return s["vocab"]


def make_blocks(path, rng):
    """Every type's rows of random bits, X, with their weights as f32, X.f32."""
    halves = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
              "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0]}
    w = gguf.GGUFWriter(path, "blocks")
    for name, places in halves.items():
        kind = gguf.GGMLQuantizationType[name]
        size, bytes_ = gguf.GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (1024 // size, bytes_), dtype=np.uint8)
        for place in places:
            numbers = (rng.standard_normal(len(blocks)) * 0.1).astype("<f2")
            blocks[:, place:place + 2] = numbers[:, None].view(np.uint8)
        rows = blocks.reshape(2, -1)
        w.add_tensor(name, rows, raw_dtype=kind)
        w.add_tensor(name + ".f32", gguf.quants.dequantize(rows, kind).astype(np.float32))
    finish(w)


def make_pre(out, program, peers):
    """A vocabulary whose merges know no words, and its tokens for every tokenizer.ggml.pre that we read."""
    source = (HERE.parents[1] / "retro/text/open/tokenizer_gguf_pre.c").read_text()
    names = [line.split('"')[1] for line in source.splitlines() if line.startswith('    {"')]
    with open(out / "pre.txt", "w") as lines, tempfile.TemporaryDirectory() as scratch:
        for name in names:
            path = out / "vocabulary.gguf" if name == "gpt-2" else pathlib.Path(scratch) / "vocabulary.gguf"
            w = gguf.GGUFWriter(path, "gpt2")
            add_shape(w, dict(layers=1, d=4, heads=1, kv=1, head=4, ffn=4, context=16))
            vocab = add_bpe(w, name, whole_text=True)
            model = pathlib.Path(scratch) / "model.gguf"
            finish(w)
            s = dict(architecture="gpt2", layers=1, d=4, heads=1, kv=1, head=4, ffn=4, context=16, vocab=vocab)
            write_model(model, s, gpt2_tensors(np.random.default_rng(1), s), lambda w: add_bpe(w, name, True), {})
            reference = Reference(program, model)
            for number, text in enumerate(TEXTS):
                print(name, number, *reference.tokens(text, False, False), file=lines)
    (out / "texts.txt").write_text("".join(text.encode().hex() + "\n" for text in TEXTS))


def make_wordpiece(out):
    w = gguf.GGUFWriter(out / "wordpiece.gguf", "bert")
    add_wordpiece(w)
    finish(w)


def expert_tensors(s):
    """Two stacked experts in place of the MLP."""
    t = llama_tensors(np.random.default_rng(1), s, factors=False)
    for name in ("gate", "up", "down"):
        t[f"blk.0.ffn_{name}_exps.weight"] = np.stack([t.pop(f"blk.0.ffn_{name}.weight")] * 2)
    return t | {"blk.0.ffn_gate_inp.weight": np.ones((2, s["d"]), np.float32)}


def add_experts(w, add_tokenizer):
    w.add_expert_count(2)
    w.add_expert_used_count(1)
    add_tokenizer(w)


def make_seeds(folder):
    """Small whole files for tests/fuzz/fuzz_gguf.c."""
    def add_letters(w):
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre("llama-bpe")
        w.add_token_list(["a", "b", "c", "ab", "<s>", "H", "e", "l"])
        w.add_token_types([1, 1, 1, 1, 3, 1, 1, 1])
        w.add_token_merges(["a b"])
        w.add_bos_token_id(4)
        w.add_eos_token_id(4)

    q = gguf.GGMLQuantizationType
    folder.mkdir(parents=True, exist_ok=True)
    s = dict(architecture="llama", layers=1, d=32, heads=2, kv=1, head=16, ffn=32, context=16, vocab=8)
    kinds = {"attn_q": q.Q4_0, "attn_k": q.Q8_0, "attn_v": q.Q5_0, "attn_output": q.Q4_1, "ffn": q.Q5_1}
    write_model(folder / "llama", s, llama_tensors(np.random.default_rng(1), s), add_letters, kinds)
    s = dict(s, architecture="gpt2", kv=2)
    write_model(folder / "gpt2", s, gpt2_tensors(np.random.default_rng(1), s), add_letters, {"attn": q.F16})
    s = dict(s, architecture="llama", kv=1, ffn=8)
    write_model(folder / "mixtral", s, expert_tensors(s), lambda w: add_experts(w, add_letters), {"attn": q.F16})
    s = dict(s, architecture="phi3")
    factors = {f"rope_factors_{kind}.weight": np.linspace(1, 2, 8, dtype=np.float32) for kind in ("long", "short")}
    write_model(folder / "phi3", s, factors | {"token_embd.weight": np.ones((8, 32), np.float32)}, add_letters, {})
    for name, add in (("sentencepiece", add_sentencepiece), ("wordpiece", add_wordpiece)):
        w = gguf.GGUFWriter(folder / name, "qwen2")
        add(w)
        finish(w)


def main(peers, out):
    with tempfile.TemporaryDirectory() as scratch:
        program = build_reference(peers, pathlib.Path(scratch))
        for name, make, extra in (("llama", make_llama, ()), ("qwen2", make_qwen2, ()), ("gpt2", make_gpt2, ()),
                                  ("kquants", make_kquants, (peers,)),
                                  *((name, make_relative, (name,)) for name in RELATIVES)):
            folder = out / name
            folder.mkdir(parents=True, exist_ok=True)
            rng = np.random.default_rng(sum(map(ord, name)))
            vocab = make(folder, program, rng, *extra)
            write_cases(folder, program, vocab, rng)
            if name in ("llama", "qwen2", "gpt2"):
                write_tokens(folder / "tokens.txt", program, folder / "model.gguf")
        make_blocks(out / "blocks.gguf", np.random.default_rng(7))
        make_pre(out, program, peers)
        make_wordpiece(out)
        make_seeds(HERE.parent / "fuzz/corpus/gguf")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
