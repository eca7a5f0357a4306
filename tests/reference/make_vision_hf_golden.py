"""Writes tests/golden/vision/{hf_,llava_hf_}*, tests/golden/{llava,llava_next,clip,siglip}_served: tiny random vision models of transformers' own classes, with rows, logits
and a greedy continuation.

    pip install torch transformers==5.23.0 safetensors numpy
    python tests/reference/make_vision_hf_golden.py [NAME ...]

Models run in f32 with eager attention and are written by save_pretrained, so names and config.json are what users bring.
Texts have an id for each row of a picture, as the processor makes them. Nothing is patched.
"""
import json
import os
import shutil
import sys
import warnings
import zlib
from pathlib import Path

os.environ["TRANSFORMERS_OFFLINE"] = os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")
import numpy as np
import torch
import transformers
from PIL import Image
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from safetensors.numpy import save_file
from transformers import (CLIPConfig, CLIPImageProcessorPil, CLIPModel, CLIPVisionConfig, CLIPVisionModel, LlamaConfig, LlavaConfig,
                          LlavaForConditionalGeneration, LlavaNextConfig,
                          LlavaNextForConditionalGeneration, LlavaNextImageProcessorPil, MistralConfig, PreTrainedTokenizerFast, SiglipVisionConfig,
                          SiglipVisionModel)

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

OUT = Path(__file__).resolve().parents[1] / "golden/vision"
VOCAB, IMAGE, NEW = 64, 63, 12
TEXT = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0)
TOWER = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=3, patch_size=7)


def fill(model, seed):
    """Every bias is non-zero, no norm weight is one."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            key = name.replace("model.", "")
            z = np.random.Generator(np.random.PCG64([seed, zlib.crc32(key.encode())])).standard_normal(tuple(p.shape))
            if "norm" in name or "layrnorm" in name:
                z = 1 + 0.25 * z if name.endswith("weight") else 0.2 * z
            elif name.endswith("bias"):
                z = 0.2 * z
            elif p.ndim >= 2 and "embed" not in name:
                z = z / np.sqrt(np.prod(p.shape[1:]))
            else:
                z = 0.6 * z
            p.copy_(torch.from_numpy(np.asarray(z, np.float32)))
    return model.eval()


def pictures(n, size, seed):
    return torch.from_numpy(np.random.Generator(np.random.PCG64(seed)).standard_normal((n, 3, size, size)).astype(np.float32))


def write(folder, model, cases, generation=None):
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    for name in ("generation_config.json",):
        (folder / name).unlink(missing_ok=True)
    save_file({k: np.ascontiguousarray(v) for k, v in cases.items()}, folder / "cases.safetensors")
    if generation:
        save_file({k: np.ascontiguousarray(v) for k, v in generation.items()}, folder / "generation.safetensors")


def make_tower(name, model, size):
    cases = {}
    fill(model, zlib.crc32(name.encode()))
    for n in (1, 2):
        x = pictures(n, size, n)
        with torch.no_grad():
            out = model(pixel_values=x)
        cases |= {f"t{n}.pixel_values": x.numpy(), f"t{n}.last_hidden_state": out.last_hidden_state.numpy(),
                  f"t{n}.pooler_output": out.pooler_output.numpy()}
    write(OUT / name, model, cases)


def expand(ids, rows):
    return [i for id in ids for i in ([id] * rows if id == IMAGE else [id])]


def make_llava(name, model, size, rows):
    fill(model, zlib.crc32(name.encode()))
    cases, generation = {}, {}
    texts = {"one": [5, 9, IMAGE, 7, 8, 11, 3], "start": [IMAGE, 4, 6, 13], "two": [5, IMAGE, IMAGE, 20, 21, 33, 40]}
    for i, (case, text) in enumerate(texts.items()):
        ids, x = torch.tensor([expand(text, rows)]), pictures(text.count(IMAGE), size, 50 + i)
        with torch.no_grad():
            logits = model(input_ids=ids, pixel_values=x).logits
        cases |= {f"{case}.input_ids": ids.numpy().astype(np.int32), f"{case}.pixel_values": x.numpy(),
                  f"{case}.logits": logits.numpy()}
    ids, x = torch.tensor([expand(texts["two"], rows)]), pictures(2, size, 52)
    tokens, logits = [], []
    for _ in range(NEW):
        with torch.no_grad():
            row = model(input_ids=ids, pixel_values=x).logits[0, -1]
        row_allowed = row.clone()
        row_allowed[IMAGE] = -1e9  # a picture that is drawn would have no pixels
        assert row[IMAGE] < row_allowed.max(), "another seed: the picture's id would be drawn"
        tokens.append(int(row_allowed.argmax()))
        logits.append(row.numpy())
        ids = torch.cat([ids, torch.tensor([[tokens[-1]]])], 1)
    generation = {"greedy.prompt": np.array(expand(texts["two"], rows), np.int32), "greedy.pixel_values": x.numpy(),
                  "greedy.tokens": np.array(tokens, np.int32), "greedy.logits": np.stack(logits)}
    write(OUT / name, model, cases, generation)


def llava(text, vision, **keys):
    config = LlavaConfig(text_config=text, vision_config=vision, image_token_id=IMAGE, **keys)
    config._attn_implementation = "eager"
    return LlavaForConditionalGeneration(config)


TEMPLATE = """{% for message in messages %}{{ message['role'].upper() + ': ' }}{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}{% endfor %}{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}{{ content['text'] + ' ' }}{% endfor %}{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"""
PICTURES = [("wide.png", 61, 40), ("tall.png", 30, 77), ("plain.png", 28, 28)]
IDS = 260  # bytes, then these:
NAMED = {256: "<s>", 257: "</s>", 258: "<image>", 259: "<pad>"}


def byte_alphabet():
    """Bytes as the characters that byte-level vocabularies write for them."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in shown]
    return {b: chr(b) for b in shown} | {b: chr(256 + i) for i, b in enumerate(rest)}


def write_tokenizer(folder):
    added = [{"id": i, "content": name, "special": True, "lstrip": False, "rstrip": False, "single_word": False,
              "normalized": False} for i, name in NAMED.items()]
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {c: b for b, c in byte_alphabet().items()}, "merges": []}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    (folder / "chat_template.jinja").write_text(TEMPLATE)


def make_picture(name, width, height, seed):
    """Smooth colours: what resizing does to them shows."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    waves = [127 + 120 * np.sin((seed + c) * (x / width * 3 + y / height * (c + 1))) for c in range(3)]
    picture = Image.fromarray(np.stack(waves, -1).astype(np.uint8))
    picture.save(name)
    return picture


def see(model, processor, pictures):
    """What the model is given of pictures, and the rows that it makes of each."""
    if not pictures:
        return {}, []
    inputs = processor(pictures)
    given = {"pixel_values": torch.from_numpy(np.stack(inputs["pixel_values"]))}
    if "image_sizes" in inputs:
        given["image_sizes"] = torch.tensor(np.array(inputs["image_sizes"]))
    with torch.no_grad():
        rows = model.model.get_image_features(**given).pooler_output
    return given, [len(r) for r in rows]


def answer(model, tokenizer, processor, messages, pictures):
    """What the whole pipeline of transformers reads and writes: greedy, and never two ids nearly alike."""
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    given, rows = see(model, processor, pictures)
    ids = torch.tensor([expand_image(tokenizer.encode(text, add_special_tokens=False), rows)])
    n, written, logprobs = ids.shape[1], [], []
    for _ in range(NEW):
        with torch.no_grad():
            row = model(input_ids=ids, **given).logits[0, -1]
        best = torch.topk(row, 2)
        assert best.values[0] - best.values[1] > 1e-3, "another seed: two ids are nearly alike"
        written.append(int(best.indices[0]))
        logprobs.append(float(torch.log_softmax(row.double(), 0).max()))
        if written[-1] == 257:
            break
        ids = torch.cat([ids, torch.tensor([[written[-1]]])], 1)
    return n, tokenizer.decode(written, skip_special_tokens=True), logprobs


def expand_image(ids, rows):
    rows = iter(rows)
    return [i for id in ids for i in ([id] * next(rows) if id == 258 else [id])]


def make_served(name):
    """A folder as it is downloaded, pictures, and what transformers answers to messages about them."""
    folder = OUT.parent / name
    text = dict(TEXT, vocab_size=IDS, max_position_embeddings=512, bos_token_id=256, eos_token_id=257, pad_token_id=259)
    parts = dict(text_config=LlamaConfig(**text), vision_config=CLIPVisionConfig(image_size=28, **TOWER), image_token_id=258)
    size = dict(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})
    if name == "llava_next_served":
        grids = [[28, 56], [56, 28], [56, 56], [28, 84]]
        config, kind = LlavaNextConfig(image_grid_pinpoints=grids, **parts), LlavaNextForConditionalGeneration
        processor = LlavaNextImageProcessorPil(image_grid_pinpoints=grids, **size)
    else:
        config, kind = LlavaConfig(**parts), LlavaForConditionalGeneration
        processor = CLIPImageProcessorPil(**size)
    config._attn_implementation = "eager"
    model = fill(kind(config), 11)
    with torch.no_grad():
        letters = torch.zeros(IDS, 1)
        letters[ord("a"):ord("z") + 1] = 1
        model.lm_head.weight.mul_(letters)
        model.lm_head.weight[257] = -10 * model.lm_head.weight[ord("a"):ord("z") + 1].mean(0)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    write_tokenizer(folder)
    processor.save_pretrained(folder)
    pictures = {f: make_picture(folder / f, w, h, i) for i, (f, w, h) in
                enumerate(PICTURES)}
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), chat_template=TEMPLATE)
    cases = []
    for parts in (["wide.png", "What is this?"], ["tall.png", "What is this?"], ["wide.png", "tall.png", "Which one?"],
                  ["tall.png", "wide.png", "Which one?"], ["Compare ", "plain.png", " with "], ["No picture"]):
        content = [{"type": "image"} if p in pictures else {"type": "text", "text": p} for p in parts]
        n, written, logprobs = answer(model, tokenizer, processor, [{"role": "user", "content": content}],
                                      [pictures[p] for p in parts if p in pictures])
        cases.append({"parts": parts, "prompt_tokens": n, "answer": written, "logprobs": logprobs})
    (folder / "answers.json").write_text(json.dumps(cases) + "\n")


WORDS = """A picture of a cat on a mat. A photo of the red house by the sea, with a dog in the garden and birds above.
Two people read a book about photographs. It's raining; they're inside and don't mind the weather at all."""


def train_clip_tokenizer(folder):
    """CLIP's kind: lower case, words by a pattern, and a mark behind the last piece of each word."""
    t = Tokenizer(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"""<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"""),
                             behavior="removed", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    t.train_from_iterator([WORDS] * 3, trainers.BpeTrainer(vocab_size=640, initial_alphabet=alphabet,
                                                           end_of_word_suffix="</w>", show_progress=False))
    vocab = json.loads(t.to_str())["model"]
    for c in alphabet:  # as CLIP: each byte as it is, and as the end of a word
        vocab["vocab"].setdefault(c + "</w>", len(vocab["vocab"]))
    text = json.loads(t.to_str())
    text["model"] = vocab
    n = len(vocab["vocab"])
    vocab["vocab"] |= {"<|startoftext|>": n, "<|endoftext|>": n + 1}
    text["added_tokens"] = [{"id": n + i, "content": c, "special": True, "lstrip": False, "rstrip": False,
                             "single_word": False, "normalized": False}
                            for i, c in enumerate(["<|startoftext|>", "<|endoftext|>"])]
    text["post_processor"] = {"type": "RobertaProcessing", "sep": ["<|endoftext|>", n + 1], "cls": ["<|startoftext|>", n],
                              "trim_offsets": False, "add_prefix_space": False}
    (folder / "tokenizer.json").write_text(json.dumps(text, ensure_ascii=False))
    return Tokenizer.from_file(str(folder / "tokenizer.json")), n + 2


def make_joint(name):
    """CLIP with both towers: vectors of texts and of pictures in one space."""
    folder = OUT.parent / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    tokenizer, n = train_clip_tokenizer(folder)
    text = dict(vocab_size=n, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                max_position_embeddings=24, bos_token_id=n - 2, eos_token_id=n - 1, pad_token_id=n - 1)
    config = CLIPConfig(text_config=text, vision_config=dict(image_size=28, **TOWER), projection_dim=20)
    config._attn_implementation = "eager"
    model = fill(CLIPModel(config), 5)
    model.save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 24, "tokenizer_class": "CLIPTokenizer"}))
    processor = CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})
    processor.save_pretrained(folder)
    pictures = [make_picture(OUT.parent / "llava_served" / f, w, h, i) for i, (f, w, h) in enumerate(PICTURES)]
    texts = ["A photo of a cat", "two dogs' houses, by the sea!", "don't", "  Ünïcödé 12 ", "word " * 40]
    result = {"texts": {}, "pictures": {}}
    with torch.no_grad():
        for t in texts:
            ids = tokenizer.encode(t).ids
            ids = ids[:23] + ids[-1:] if len(ids) > 24 else ids
            v = model.get_text_features(input_ids=torch.tensor([ids])).pooler_output[0]
            result["texts"][t] = (v / v.norm()).tolist()
        for (f, _, _), p in zip(PICTURES, pictures):
            v = model.get_image_features(pixel_values=torch.from_numpy(np.stack(processor([p])["pixel_values"]))).pooler_output[0]
            result["pictures"][f] = (v / v.norm()).tolist()
    (folder / "vectors.json").write_text(json.dumps(result, ensure_ascii=False) + "\n")


def make_siglip(name):
    """SigLIP with both towers: the picture's vector is gathered by a learned query, texts are filled up."""
    import sentencepiece
    from transformers import SiglipConfig, SiglipImageProcessor, SiglipModel, SiglipTokenizer
    folder = OUT.parent / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "words.txt").write_text((WORDS.lower() + "\n") * 3)
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "words.txt"), model_prefix=str(folder / "spiece"), vocab_size=120, character_coverage=1.0,
        model_type="unigram", pad_id=-1, bos_id=-1, eos_id=1, unk_id=0, hard_vocab_limit=False, minloglevel=2, normalization_rule_name="identity")
    for leftover in ("words.txt", "spiece.vocab"):
        (folder / leftover).unlink()
    tokenizer = SiglipTokenizer(str(folder / "spiece.model"), model_max_length=24)
    vision = dict(image_size=21, vision_use_head=True, **TOWER)
    text = dict(vocab_size=tokenizer.vocab_size, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
                num_attention_heads=3, max_position_embeddings=24, projection_size=24)
    config = SiglipConfig(text_config=text, vision_config=vision)
    config._attn_implementation = "eager"
    model = fill(SiglipModel(config), 9)
    model.save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"model_max_length": 24, "tokenizer_class": "SiglipTokenizer", "pad_token": "</s>", "eos_token": "</s>", "unk_token": "<unk>"}))
    processor = SiglipImageProcessor(size={"height": 21, "width": 21})
    processor.save_pretrained(folder)
    pictures = [Image.open(OUT.parent / "llava_served" / f) for f, _, _ in PICTURES]
    texts = ["A photo of a cat", "Two dogs' houses,  by the SEA!", "don't\tmind", "", "word " * 40]
    result = {"texts": {}, "pictures": {}}
    with torch.no_grad():
        for t in texts:
            ids = tokenizer([t], padding="max_length", truncation=True, max_length=24, return_tensors="pt").input_ids
            v = model.get_text_features(input_ids=ids).pooler_output[0]
            result["texts"][t] = (v / v.norm()).tolist()
        for (f, _, _), p in zip(PICTURES, pictures):
            v = model.get_image_features(pixel_values=torch.from_numpy(np.stack(processor([p])["pixel_values"]))).pooler_output[0]
            result["pictures"][f] = (v / v.norm()).tolist()
    (folder / "vectors.json").write_text(json.dumps(result, ensure_ascii=False) + "\n")


MODELS = {
    "siglip_served": make_siglip,
    "clip_served": make_joint,
    "llava_served": make_served,
    "llava_next_served": make_served,
    "hf_clip": lambda name: make_tower(name, CLIPVisionModel(CLIPVisionConfig(image_size=28, **TOWER)), 28),
    "hf_siglip": lambda name: make_tower(name, SiglipVisionModel(SiglipVisionConfig(image_size=21, **TOWER)), 21),
    "llava_hf_clip": lambda name: make_llava(
        name, llava(LlamaConfig(**TEXT), CLIPVisionConfig(image_size=28, **TOWER)), 28, 16),
    "llava_hf_siglip": lambda name: make_llava(
        name, llava(MistralConfig(sliding_window=None, **TEXT), SiglipVisionConfig(image_size=21, **TOWER), vision_feature_layer=-1,
                    vision_feature_select_strategy="full", projector_hidden_act="gelu_pytorch_tanh",
                    multimodal_projector_bias=False), 21, 9),
}

if __name__ == "__main__":
    for model in sys.argv[1:] or MODELS:
        MODELS[model](model)
