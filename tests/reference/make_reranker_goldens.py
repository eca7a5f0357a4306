#!/usr/bin/env python3
"""Writes tests/golden/reranker/KIND: tiny random cross-encoders of each kind and their logits by transformers.

    python tests/reference/make_reranker_goldens.py [KIND...]

Needs what make_embedder_goldens.py needs; `make test` reads what this script wrote. The kept files were made with
transformers 5.23.0, torch 2.15.0, CPU float32, one pair a batch. Weights are random: they say whether the computation
is right, and nothing of what a trained reranker finds.

KIND/                 the folder as transformers saves it
KIND/expected.json    "tokens" and "logits" of each pair of pairs.json, read by the tokenizer with longest_first
KIND/instructed.json  the same of a reranker that is asked, by an instruction of one's own
pairs.json            [query, text] of all kinds
"""
import json
import shutil
import sys

import tokenizers
import torch
import transformers
from tokenizers import pre_tokenizers, processors, trainers

from make_embedder_goldens import (HIDDEN, HEADS, FFN, LAYERS, OUT as EMBEDDERS, SENTENCES, bert_tokenizer, randomize,
                                   qwen_tokenizer, roberta_tokenizer, sizes, train, xlm_tokenizer)

OUT = EMBEDDERS.parent / "reranker"
LONG = "open the file and read the words of it " * 6
PAIRS = [[a, b] for a in SENTENCES[:3] for b in SENTENCES[:6]] + [
    ["", "a word"], ["x86_64", "Crème brûlée à la façon d'Hélène"], [LONG, "short"],
    ["short", LONG], [LONG, LONG], ["read", "words " * 13], ["🙂 Ship it 🚀 now!", "進程在讀取文件時被阻塞。"]]


def bert(t):
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(**sizes(t, max_position_embeddings=40, num_labels=1)))


def roberta(t, kind=transformers.RobertaForSequenceClassification, config=transformers.RobertaConfig):
    return kind(config(**sizes(t, max_position_embeddings=42, type_vocab_size=1, pad_token_id=1, num_labels=1)))


def xlm(t):
    return roberta(t, transformers.XLMRobertaForSequenceClassification, transformers.XLMRobertaConfig)


def distilbert(t):
    return transformers.DistilBertForSequenceClassification(transformers.DistilBertConfig(
        vocab_size=len(t), dim=HIDDEN, n_layers=LAYERS, n_heads=HEADS, hidden_dim=FFN, max_position_embeddings=40,
        num_labels=1))


def modernbert(t, **more):
    """Windows of four tokens to each side, so that most pairs are longer."""
    return transformers.ModernBertForSequenceClassification(transformers.ModernBertConfig(
        **sizes(t, max_position_embeddings=512, local_attention=8, pad_token_id=1, bos_token_id=0, eos_token_id=2,
                cls_token_id=0, sep_token_id=2, num_labels=1, **more)))


def modernbert_mean(t):
    return modernbert(t, classifier_pooling="mean", classifier_bias=True, norm_bias=False)


def modernbert_biases(t):
    """Biases of all norms, also that of the head."""
    return modernbert(t, norm_bias=True, attention_bias=True, mlp_bias=True, classifier_bias=True)


def deberta_pieces():
    """The ids that DeBERTa-v3 gives its special tokens, and a vocabulary of pieces."""
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    model = train(tokenizers.models.Unigram(), pre_tokenizers.Metaspace(),
                  trainers.UnigramTrainer(vocab_size=200, special_tokens=special, unk_token="[UNK]", show_progress=False))
    return [(piece, score) for piece, score in model["vocab"]] + [("[MASK]", 0.0)]


def deberta_tokenizer():
    """As transformers 5 makes it."""
    return transformers.DebertaV2Tokenizer(vocab=deberta_pieces(), unk_id=3)


def published_deberta_tokenizer():
    """As transformers 4 has converted it for the published models, but for the table of characters."""
    raw = tokenizers.Tokenizer(tokenizers.models.Unigram(deberta_pieces()[:-1], unk_id=3, byte_fallback=False))
    raw.normalizer = tokenizers.normalizers.Sequence([
        tokenizers.normalizers.Strip(), tokenizers.normalizers.NFKC(), tokenizers.normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])
    raw.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")])
    raw.decoder = tokenizers.decoders.Metaspace(replacement="▁", prepend_scheme="always")
    raw.post_processor = processors.TemplateProcessing(single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
                                                       special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="[CLS]", eos_token="[SEP]", unk_token="[UNK]",
                                                pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")


def deberta(t, **more):
    """Distances beyond four share rows by their logarithms, so most pairs have some."""
    keys = {"relative_attention": True, "position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True,
            "pos_att_type": "p2c|c2p", "position_biased_input": False, "max_position_embeddings": 40, "num_labels": 1,
            "layer_norm_eps": 1e-7, "pooler_hidden_size": HIDDEN, **more}
    return transformers.DebertaV2ForSequenceClassification(transformers.DebertaV2Config(**sizes(t, **keys)))


def deberta_plain(t):
    """A row for each distance up to 24; those farther share the last ones."""
    return deberta(t, position_buckets=-1, max_relative_positions=24, norm_rel_ebd="none", pooler_hidden_act="tanh")


KINDS = {"bert": (bert_tokenizer, bert), "roberta": (roberta_tokenizer, roberta), "xlm": (xlm_tokenizer, xlm),
         "distilbert": (bert_tokenizer, distilbert), "modernbert": (bert_tokenizer, modernbert),
         "modernbert_mean": (bert_tokenizer, modernbert_mean), "deberta": (published_deberta_tokenizer, deberta),
         "deberta_plain": (deberta_tokenizer, deberta_plain), "modernbert_biases": (bert_tokenizer, modernbert_biases)}


INSTRUCT = "Given a web search query, retrieve relevant passages that answer the query"
OWN = "Find the page of the manual that tells how it is done"
BEFORE = ('<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. '
          'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n')
BEHIND = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
ROOM = 400


def answers_tokenizer():
    """A tokenizer of bytes in which the two answers are words."""
    t = qwen_tokenizer()
    t.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    t.add_tokens(["yes", "no"])
    return t


def write_answers(kind, seed, scored):
    """Qwen3-Reranker, as its model card scores pairs: the logit of yes less that of no; or the head that some make of it."""
    folder = OUT / kind
    shutil.rmtree(folder, ignore_errors=True)
    tokenizer = answers_tokenizer()
    tokenizer.model_max_length = ROOM
    config = transformers.Qwen3Config(**sizes(tokenizer, num_key_value_heads=2, head_dim=16, max_position_embeddings=512,
                                              num_labels=1, pad_token_id=0, tie_word_embeddings=True))
    model = (transformers.Qwen3ForSequenceClassification if scored else transformers.Qwen3ForCausalLM)(config).eval()
    randomize(model, seed)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for instruction, name in (INSTRUCT, "expected.json"), (OWN, "instructed.json"):
        tokens, logits = score_answers(model, tokenizer, instruction, scored)
        expected = {"tokens": tokens, "logits": logits} | ({"instruction": OWN} if instruction == OWN else {})
        (folder / name).write_text(json.dumps(expected) + "\n")
        print(kind, min(logits), max(logits), min(tokens), max(tokens))


def question(tokenizer, instruction, query, text):
    return tokenizer.encode(f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {text}", add_special_tokens=False)


def cut_query(tokenizer, query, most):
    """The card's code cuts the end of query and document together; here a long query leaves room to the document."""
    starts = [start for start, _ in tokenizer(query, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]]
    return query if len(starts) <= most else query[:starts[most]]


def score_answers(model, tokenizer, instruction, scored):
    yes, no = (tokenizer.convert_tokens_to_ids(word) for word in ("yes", "no"))
    before, behind = (tokenizer.encode(text, add_special_tokens=False) for text in (BEFORE, BEHIND))
    room = ROOM - len(before) - len(behind)
    most = (room - len(question(tokenizer, instruction, "", ""))) // 2
    tokens, logits = [], []
    for query, text in PAIRS:
        pair = question(tokenizer, instruction, query, text)
        if len(pair) > room:
            pair = question(tokenizer, instruction, cut_query(tokenizer, query, most), text)
        ids = before + pair[:room] + behind
        with torch.inference_mode():
            last = model(input_ids=torch.tensor([ids])).logits
        logits.append(last.item() if scored else (last[0, -1, yes] - last[0, -1, no]).item())
        tokens.append(len(ids))
    return tokens, logits


def publish(folder):
    """config.json as transformers 4 has written it for the published models."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    later = ("dtype", "legacy", "tie_word_embeddings", "bos_token_id", "eos_token_id")
    config = {key: value for key, value in config.items() if key not in later}
    config |= {"pos_att_type": "p2c|c2p", "torch_dtype": "float32", "transformers_version": "4.38.2"}
    path.write_text(json.dumps(config, indent=2) + "\n")


def write_kind(kind, seed):
    make_tokenizer, make_model = KINDS[kind]
    folder = OUT / kind
    shutil.rmtree(folder, ignore_errors=True)
    tokenizer = make_tokenizer()
    tokenizer.model_max_length = 40
    model = make_model(tokenizer).eval()
    randomize(model, seed)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    tokens, logits = [], []
    for query, text in PAIRS:
        read = tokenizer(query, text, truncation="longest_first", max_length=40, return_tensors="pt")
        with torch.inference_mode():
            logits.append(model(**read).logits.item())
        tokens.append(read["input_ids"].shape[1])
    (folder / "expected.json").write_text(json.dumps({"tokens": tokens, "logits": logits}) + "\n")
    if kind == "deberta":
        publish(folder)
    print(kind, min(logits), max(logits))


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "pairs.json").write_text(json.dumps(PAIRS, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    for seed, kind in enumerate(KINDS):
        if len(sys.argv) == 1 or kind in sys.argv[1:]:
            write_kind(kind, seed)
    for seed, (kind, scored) in enumerate({"qwen3": False, "qwen3_scored": True}.items(), 100):
        if len(sys.argv) == 1 or kind in sys.argv[1:]:
            write_answers(kind, seed, scored)


if __name__ == "__main__":
    main()
