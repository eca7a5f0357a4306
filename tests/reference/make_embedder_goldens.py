#!/usr/bin/env python3
"""Writes tests/golden/embedder/KIND: tiny random embedders of each kind and their vectors by sentence-transformers.

    python tests/reference/make_embedder_goldens.py [KIND...]

Needs `pip install sentence-transformers`, which brings PyTorch; `make test` reads what this script wrote. The kept files
were made with sentence-transformers 6.2.0, transformers 5.23.0 (gemma2_mean 5.24.0), torch 2.15.0, CPU float32, one text a
batch.

KIND/                        the folder as sentence-transformers saves it; "old" kinds are rewritten to the spellings of
                             sentence-transformers 2
KIND/expected.safetensors    "plain", "query" and "document" f32 [texts, dim]: encode, encode_query and encode_document;
                             "tokens" i32 [texts]: how many ids encode read
texts.json                   the texts of all kinds
"""
import json
import pathlib
import shutil
import sys
import tempfile

import numpy as np
import sentence_transformers
import tokenizers
import torch
import transformers
from safetensors.numpy import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import pre_tokenizers, processors, trainers

OUT = pathlib.Path(__file__).parent.parent / "golden" / "embedder"
HIDDEN, HEADS, FFN, LAYERS, LIMIT = 32, 4, 64, 2, 24

SENTENCES = [
    "How do I list open files?",
    "The quick brown fox jumps over the lazy dog.",
    "Retrieval helps a small model copy the right words.",
    "Returns zero on success, -1 on error.",
    "It's the reader's choice, isn't it? They're sure; we'd agree.",
    "Der Prozess wartet, bis alle Größen überprüft sind.",
    "Le noyau vérifie l'accès à la mémoire.",
    "進程在讀取文件時被阻塞。",
    "int main(void) {\n\tprintf(\"%d\\n\", 1 << 5);\n\treturn 0;\n}\n",
    "query: what is a passage: of text",
]
TEXTS = [
    *SENTENCES,
    "",
    " ",
    "   leading and trailing   ",
    "a",
    "x86_64",
    " ".join(SENTENCES[:4]),
    "file " * 40,
    "open the file and read the words of it " * 6,
    "<pad> <s> </s> <mask> [CLS] [SEP] [PAD] and words after them",
    "Crème brûlée à la façon d'Hélène",
    "🙂 Ship it 🚀 now!",
    "ALL CAPITALS SHOUT, all lowercase whispers",
    "\ufffd\u00ad\u200b one\u2028line",
    "ｶﾀｶﾅ　ＦＵＬＬＷＩＤＴＨ　１２３ ﬁ ² ½",
]
PROMPTS = {"query": "query: ", "document": "passage: "}
INSTRUCTION = {"query": "Instruct: find the words that answer\nQuery:", "document": ""}


def train(model, pre, trainer, normalizer=None):
    """The vocabulary of a tokenizer trained on the texts."""
    t = tokenizers.Tokenizer(model)
    t.pre_tokenizer = pre
    if normalizer:
        t.normalizer = normalizer
    t.train_from_iterator(SENTENCES * 2, trainer)
    return json.loads(t.to_str())["model"]


def wordpiece_vocab(special):
    model = train(tokenizers.models.WordPiece(unk_token="[UNK]"), pre_tokenizers.BertPreTokenizer(),
                  trainers.WordPieceTrainer(vocab_size=200, special_tokens=special, show_progress=False),
                  tokenizers.normalizers.BertNormalizer(lowercase=True))
    return model["vocab"]


def bpe_model(special):
    return train(tokenizers.models.BPE(), pre_tokenizers.ByteLevel(add_prefix_space=False),
                 trainers.BpeTrainer(vocab_size=330, special_tokens=special, show_progress=False,
                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))


def bert_tokenizer():
    return transformers.BertTokenizer(vocab=wordpiece_vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))


def mpnet_tokenizer():
    return transformers.MPNetTokenizer(vocab=wordpiece_vocab(["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]))


def roberta_tokenizer():
    model = bpe_model(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    return transformers.RobertaTokenizer(vocab=model["vocab"], merges=[tuple(m) for m in model["merges"]])


def xlm_tokenizer():
    pre = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    model = train(tokenizers.models.Unigram(), pre,
                  trainers.UnigramTrainer(vocab_size=200, special_tokens=special, unk_token="<unk>",
                                          show_progress=False))
    pieces = [(piece, score) for piece, score in model["vocab"]]
    return transformers.XLMRobertaTokenizer(vocab=[*pieces, ("<mask>", 0.0)])


def qwen_tokenizer():
    """Ends a text with <|endoftext|>, as Qwen3-Embedding's tokenizer does."""
    model = bpe_model(["<|endoftext|>"])
    t = transformers.Qwen2Tokenizer(vocab=model["vocab"], merges=[tuple(m) for m in model["merges"]])
    end = t.eos_token_id
    t._tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <|endoftext|>", pair="$A $B <|endoftext|>", special_tokens=[("<|endoftext|>", end)])
    t.padding_side = "left"
    return t


def llama_tokenizer():
    """Begins a text with <s> and ends it with nothing."""
    model = bpe_model(["<unk>", "<s>", "</s>"])
    raw = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=model["vocab"], merges=[tuple(m) for m in model["merges"]]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = tokenizers.decoders.ByteLevel()
    raw.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>",
                                                unk_token="<unk>", pad_token="</s>")


def sizes(tokenizer, **more):
    return {"vocab_size": len(tokenizer), "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS, "intermediate_size": FFN, **more}


def bert_model(t):
    return transformers.BertModel(transformers.BertConfig(**sizes(t, max_position_embeddings=40)))


def megatron_bert_model(t):
    """Norms before the branches of a layer, and one at the end."""
    return transformers.MegatronBertModel(transformers.MegatronBertConfig(**sizes(t, max_position_embeddings=40)))


def roberta_model(t, kind=transformers.RobertaModel, config=transformers.RobertaConfig):
    return kind(config(**sizes(t, max_position_embeddings=42, type_vocab_size=1, pad_token_id=1)))


def xlm_model(t):
    return roberta_model(t, transformers.XLMRobertaModel, transformers.XLMRobertaConfig)


def mpnet_model(t):
    return transformers.MPNetModel(transformers.MPNetConfig(**sizes(t, max_position_embeddings=202)))


def distilbert_model(t):
    return transformers.DistilBertModel(transformers.DistilBertConfig(
        vocab_size=len(t), dim=HIDDEN, n_layers=LAYERS, n_heads=HEADS, hidden_dim=FFN, max_position_embeddings=40))


def llama_model(t):
    return transformers.LlamaModel(transformers.LlamaConfig(**sizes(t, num_key_value_heads=2, max_position_embeddings=512)))


def qwen2_model(t):
    return transformers.Qwen2Model(transformers.Qwen2Config(**sizes(t, num_key_value_heads=2, max_position_embeddings=512)))


def two_sided_model(t):
    """gte-Qwen2: tokens see those behind them."""
    return transformers.Qwen2Model(transformers.Qwen2Config(**sizes(t, num_key_value_heads=2, max_position_embeddings=512, is_causal=False)))


def qwen3_model(t):
    return transformers.Qwen3Model(transformers.Qwen3Config(**sizes(t, num_key_value_heads=2, head_dim=16,
                                                                    max_position_embeddings=512)))


def modernbert_model(t):
    """Windows of four tokens to each side, so that most texts are longer."""
    return transformers.ModernBertModel(transformers.ModernBertConfig(
        **sizes(t, max_position_embeddings=512, local_attention=8, pad_token_id=1, bos_token_id=0, eos_token_id=2,
                cls_token_id=0, sep_token_id=2)))


def nomic_model(t):
    return transformers.NomicBertModel(transformers.NomicBertConfig(**sizes(t, max_position_embeddings=512)))


def gemma_model(t):
    """EmbeddingGemma: windows to both sides, and most layers have one."""
    return transformers.Gemma3TextModel(transformers.Gemma3TextConfig(
        **sizes(t, num_key_value_heads=1, head_dim=16, max_position_embeddings=512, sliding_window=8, sliding_window_pattern=2,
                query_pre_attn_scalar=16, use_bidirectional_attention=True)))


def gemma2_model(t):
    """EmbeddingGemma 2, its text part: wide heads in layers without a window, inputs of each layer, a product behind the rows."""
    model = transformers.EmbeddingGemma2TextModel(transformers.EmbeddingGemma2TextConfig(
        **sizes(t, num_key_value_heads=2, head_dim=16, global_head_dim=32, max_position_embeddings=512, sliding_window=4,
                sliding_window_pattern=2, hidden_size_per_layer_input=12, embedding_dim=48)))
    for layer in model.layers:
        layer.layer_scalar.fill_(0.9)
    return model


# Tokenizer, model, modules after it, prompts, limit of tokens (None: the files decide), and whether files are rewritten.
KINDS = {
    "bert_cls": (bert_tokenizer, bert_model, lambda: [Pooling(HIDDEN, "cls"), Normalize()], INSTRUCTION, LIMIT, False),
    "bert_old": (bert_tokenizer, bert_model, lambda: [Pooling(HIDDEN, "mean"), Normalize()], {}, LIMIT, True),
    "bert_dense": (bert_tokenizer, bert_model,
                   lambda: [Pooling(HIDDEN, "mean", include_prompt=False), Dense(HIDDEN, 24), Normalize(),
                            Dense(24, 20, bias=False, activation_function=torch.nn.Identity()), Normalize()],
                   PROMPTS, LIMIT, False),
    "bert_modes": (bert_tokenizer, bert_model,
                   lambda: [Pooling(HIDDEN, ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"),
                                    include_prompt=False)], PROMPTS, LIMIT, False),
    "mpnet_mean": (mpnet_tokenizer, mpnet_model, lambda: [Pooling(HIDDEN, "mean"), Normalize()], {}, None, False),
    "distilbert_old": (bert_tokenizer, distilbert_model,
                       lambda: [Pooling(HIDDEN, ("max", "mean_sqrt_len_tokens")), Dense(2 * HIDDEN, 16)], {}, None, True),
    "roberta_mean": (roberta_tokenizer, roberta_model, lambda: [Pooling(HIDDEN, "mean"), Normalize()], {}, LIMIT, False),
    "xlm_mean": (xlm_tokenizer, xlm_model, lambda: [Pooling(HIDDEN, "mean"), Normalize()], PROMPTS, LIMIT, False),
    "xlm_cls": (xlm_tokenizer, xlm_model, lambda: [Pooling(HIDDEN, "cls"), Normalize()], {}, 40, False),
    "llama_weighted": (llama_tokenizer, llama_model, lambda: [Pooling(HIDDEN, "weightedmean")], {}, LIMIT, False),
    "qwen2_last": (qwen_tokenizer, qwen2_model, lambda: [Pooling(HIDDEN, "lasttoken"), Normalize()], INSTRUCTION, LIMIT,
                   False),
    "qwen3_last": (qwen_tokenizer, qwen3_model, lambda: [Pooling(HIDDEN, "lasttoken"), Normalize()], INSTRUCTION, None,
                   False),
    "megatron_bert": (bert_tokenizer, megatron_bert_model, lambda: [Pooling(HIDDEN, "mean"), Normalize()], {}, LIMIT, False),
    "modernbert_cls": (roberta_tokenizer, modernbert_model, lambda: [Pooling(HIDDEN, "cls"), Normalize()], {}, None, False),
    "nomic_mean": (bert_tokenizer, nomic_model, lambda: [Pooling(HIDDEN, "mean"), Normalize()], PROMPTS, LIMIT, False),
    "gemma_dense": (llama_tokenizer, gemma_model,
                    lambda: [Pooling(HIDDEN, "mean"), Dense(HIDDEN, 2 * HIDDEN, bias=False, activation_function=torch.nn.Identity()),
                             Dense(2 * HIDDEN, HIDDEN, bias=False, activation_function=torch.nn.Identity()), Normalize()],
                    PROMPTS, LIMIT, False),
    "qwen2_two_sided": (qwen_tokenizer, two_sided_model, lambda: [Pooling(HIDDEN, "lasttoken"), Normalize()], INSTRUCTION, LIMIT, False),
    "gemma2_mean": (llama_tokenizer, gemma2_model, lambda: [Pooling(48, "mean"), Normalize()], PROMPTS, LIMIT, False),
}


def randomize(module, seed):
    """Weights large enough that texts and positions matter; what norms multiply with is near one."""
    generator = torch.Generator().manual_seed(seed)
    for name, p in module.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        scale = 0.6 if "relative" in name else 0.3
        norm = "norm" in name.lower() or ".ln." in name
        p.data = 1 + 0.2 * noise if norm and name.endswith("weight") else scale * noise


def rewrite_old(folder):
    """The spellings of sentence-transformers 2: types, flags of pooling, the limit beside the transformer."""
    modules = json.loads((folder / "modules.json").read_text())
    for m in modules:
        m["type"] = "sentence_transformers.models." + m["type"].split(".")[-1]
    (folder / "modules.json").write_text(json.dumps(modules, indent=2))
    pooling = folder / "1_Pooling/config.json"
    modes = json.loads(pooling.read_text())["pooling_mode"]
    modes = [modes] if isinstance(modes, str) else modes
    flags = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens",
             "mean_sqrt_len_tokens": "mean_sqrt_len_tokens"}
    pooling.write_text(json.dumps({"word_embedding_dimension": HIDDEN,
                                   **{f"pooling_mode_{key}": mode in modes for mode, key in flags.items()}}, indent=2))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": LIMIT, "do_lower_case": True}))
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"__version__": {"sentence_transformers": "2.0.0"}}))
    # The limit of a tokenizer that knows none.
    path = folder / "tokenizer_config.json"
    config = {**json.loads(path.read_text()), "model_max_length": int(1e30)}
    path.write_text(json.dumps(config, indent=2))
    for name in ("2_Normalize/config.json",):
        (folder / name).unlink(missing_ok=True)


def make(kind):
    tokenizer, model, modules, prompts, limit, old = KINDS[kind]
    seed = list(KINDS).index(kind)
    out = OUT / kind
    shutil.rmtree(out, ignore_errors=True)
    torch.manual_seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        t = tokenizer()
        if limit:
            t.model_max_length = limit
        m = model(t)
        randomize(m, seed)
        m.save_pretrained(folder)
        t.save_pretrained(folder)
        after = modules()
        for i, module in enumerate(after):
            randomize(module, 100 + i)
        SentenceTransformer(modules=[Transformer(folder), *after], prompts=prompts, device="cpu").save(
            str(out), create_model_card=False)
    if old:
        rewrite_old(out)

    st = SentenceTransformer(str(out), device="cpu", local_files_only=True)
    one = {"batch_size": 1, "show_progress_bar": False}
    vectors = {"plain": np.concatenate([st.encode([t], **one) for t in TEXTS]),
               "query": np.concatenate([st.encode_query([t], **one) for t in TEXTS]),
               "document": np.concatenate([st.encode_document([t], **one) for t in TEXTS])}
    tokens = np.array([st.preprocess([t])["input_ids"].shape[1] for t in TEXTS], np.int32)
    assert all(v.dtype == np.float32 and np.isfinite(v).all() for v in vectors.values())
    save_file({**{k: np.ascontiguousarray(v) for k, v in vectors.items()}, "tokens": tokens}, out / "expected.safetensors")
    unit = vectors["plain"] / np.linalg.norm(vectors["plain"], axis=1, keepdims=True)
    near = np.sort((unit @ unit.T)[np.triu_indices(len(TEXTS), 1)])
    size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file())
    print(f"{kind}: {size >> 10} KB, limit {st.max_seq_length}, {tokens.min()} to {tokens.max()} tokens, dim "
          f"{unit.shape[1]}, cosines of different texts {near[0]:.2f} .. {near[len(near) // 2]:.2f} .. {near[-1]:.4f}")


def main():
    transformers.logging.set_verbosity_error()
    (OUT / "texts.json").write_text(json.dumps(TEXTS, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    for kind in sys.argv[1:] or KINDS:
        make(kind)
    print("sentence-transformers", sentence_transformers.__version__, "transformers", transformers.__version__,
          "torch", torch.__version__)


if __name__ == "__main__":
    main()
