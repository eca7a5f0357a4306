"""Writes tests/golden/vision/gemma3_a and gemma3_b: tiny random models of transformers' Gemma3ForConditionalGeneration, with
logits of texts without and with pictures, and a greedy continuation; and tests/golden/gemma3_served, a folder as it is
downloaded, with what transformers answers to chats about pictures.

    pip install torch transformers==5.23.0 safetensors numpy pillow
    python tests/reference/make_gemma3_golden.py [NAME ...]

Models run in f32 with eager attention. A picture of gemma3_a is longer than the windows, one of gemma3_b shorter. gemma3_a is
written by save_pretrained, and gemma3_b's config.json has the keys that the Hub's folders have. Texts have an id for each row
of a picture, as the processor makes them. Nothing is patched.
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
from make_vision_hf_golden import byte_alphabet, make_picture
from safetensors.numpy import save_file
from transformers import (Gemma3Config, Gemma3ForConditionalGeneration, Gemma3ImageProcessorPil, Gemma3Processor,
                          PreTrainedTokenizerFast)

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

OUT = Path(__file__).resolve().parents[1] / "golden/vision"
VOCAB, BEGIN, END, IMAGE, NEW = 64, 60, 61, 62, 12
TEXT = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2,
            head_dim=16, query_pre_attn_scalar=16, max_position_embeddings=256, eos_token_id=2, bos_token_id=1)
TOWER = dict(model_type="siglip_vision_model", hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
             image_size=32, patch_size=4, vision_use_head=False)
IDS = dict(image_token_index=IMAGE, boi_token_index=BEGIN, eoi_token_index=END)


def fill(model, seed):
    """Every bias is non-zero, no norm's weight is what training begins with."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            z = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())])).standard_normal(tuple(p.shape))
            if "layer_norm" in name or "post_layernorm" in name:
                z = 1 + 0.25 * z if name.endswith("weight") else 0.2 * z
            elif "norm" in name:
                z = 0.25 * z
            elif name.endswith("bias"):
                z = 0.2 * z
            elif "embed_tokens" in name:
                z = 0.2 * z
            elif "mm_input_projection" in name:
                z = 1.2 * z / np.sqrt(p.shape[0])
            elif "position" in name:
                z = 0.6 * z
            else:
                z = 1.3 * z / np.sqrt(np.prod(p.shape[1:]))
            p.copy_(torch.from_numpy(np.asarray(z, np.float32)))
    return model.eval()


def picture(seed):
    side = TOWER["image_size"]
    return np.random.Generator(np.random.PCG64(seed)).standard_normal((3, side, side)).astype(np.float32)


def expand(text, rows):
    """IMAGE becomes as many ids as a picture has rows."""
    return [i for id in text for i in ([id] * rows if id == IMAGE else [id])]


def run(model, ids, pixels):
    ids = torch.tensor([ids])
    extra = {"pixel_values": torch.from_numpy(np.stack(pixels))} if pixels else {}
    with torch.no_grad():
        return model(input_ids=ids, token_type_ids=(ids == IMAGE).long(), **extra).logits.numpy()


A, B = picture(1), picture(2)
CASES = {
    "text": ([5, 9, 17, 7, 8, 11, 3, 40, 41, 42], []),
    "one": ([5, 9, BEGIN, IMAGE, END, 7, 8, 11, 3], [A]),
    "first": ([IMAGE, END, 4, 6, 13], [B]),
    "last": ([4, 6, 13, BEGIN, IMAGE], [B]),
    "two": ([5, BEGIN, IMAGE, END, 20, 21, 33, BEGIN, IMAGE, END, 40, 12], [B, A]),
}


def go_on(model, prompt, pixels):
    """Tokens and logits of a greedy continuation; None where another seed is needed: a picture would be drawn, or two
    tokens are nearly alike."""
    ids, tokens, logits = prompt, [], []
    for _ in range(NEW):
        row = run(model, ids, pixels)[0, -1]
        token = int(row.argmax())
        if token == IMAGE or np.diff(np.sort(row)[-2:])[0] < 5e-3:
            return None
        tokens.append(token)
        logits.append(row)
        ids = ids + [token]
    return np.array(tokens, np.int32), np.stack(logits)


def check_generate(model, prompt, pixels, tokens):
    """With a cache transformers draws the same."""
    ids = torch.tensor([prompt])
    out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), token_type_ids=(ids == IMAGE).long(),
                         pixel_values=torch.from_numpy(np.stack(pixels)), max_new_tokens=NEW, do_sample=False, eos_token_id=None)
    assert out[0, len(prompt):].tolist() == tokens.tolist()


def make(name, text, rows):
    config = Gemma3Config(text_config=dict(TEXT, **text), vision_config=TOWER, mm_tokens_per_image=rows, **IDS)
    config._attn_implementation = "eager"
    model = Gemma3ForConditionalGeneration(config)
    asked, pixels = CASES["two"]
    prompt, seed, made = expand(asked, rows), 0, None
    while made is None:
        seed += 1
        made = go_on(fill(model, seed), prompt, pixels)
    check_generate(model, prompt, pixels, made[0])
    generation = {"greedy.prompt": np.array(prompt, np.int32), "greedy.tokens": made[0], "greedy.logits": made[1],
                  "greedy.pixel_values": np.stack(pixels)}
    cases = {}
    for case, (asked, pixels) in CASES.items():
        ids = expand(asked, rows)
        cases |= {f"{case}.input_ids": np.array([ids], np.int32), f"{case}.logits": run(model, ids, pixels)}
        cases |= {f"{case}.pixel_values": np.stack(pixels)} if pixels else {}
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_file({k: np.ascontiguousarray(v) for k, v in cases.items()}, folder / "cases.safetensors")
    save_file({k: np.ascontiguousarray(v) for k, v in generation.items()}, folder / "generation.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)
    return folder


def gemma3_a():
    make("gemma3_a", dict(num_hidden_layers=3, sliding_window=6, layer_types=["sliding_attention", "full_attention",
                                                                              "sliding_attention"]), 16)


def gemma3_b():
    folder = make("gemma3_b", dict(num_hidden_layers=2, sliding_window=9,
                                   layer_types=["sliding_attention", "full_attention"],
                                   rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                                                    "full_attention": {"rope_type": "linear", "factor": 8.0,
                                                                       "rope_theta": 1000000.0}}), 4)
    written = json.loads((folder / "config.json").read_text())
    text = {k: TEXT[k] for k in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
                                 "query_pre_attn_scalar", "vocab_size")}
    text |= dict(model_type="gemma3_text", num_hidden_layers=2, sliding_window=9, sliding_window_pattern=2,
                 rope_scaling={"factor": 8.0, "rope_type": "linear"})
    config = dict(architectures=written["architectures"], model_type="gemma3", boi_token_index=BEGIN, eoi_token_index=END,
                  image_token_index=IMAGE, eos_token_id=[2, 3], mm_tokens_per_image=4, text_config=text, vision_config=TOWER)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


# Chats.

NAMED = ["<bos>", "<eos>", "<pad>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_image>",
         "<image_soft_token>"]
LINES = ["ĊĊ", "ĊĊĊ"]  # two and three line ends, behind the bytes
ID_OF = {name: 256 + len(LINES) + i for i, name in enumerate(NAMED)}
ROWS = 16
TEMPLATE = """{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}{%- if messages[0]['content'] is string -%}{%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}{%- else -%}{%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}{%- endif -%}{%- set loop_messages = messages[1:] -%}{%- else -%}{%- set first_user_prefix = "" -%}{%- set loop_messages = messages -%}{%- endif -%}{%- for message in loop_messages -%}{%- if (message['role'] == 'assistant') -%}{%- set role = "model" -%}{%- else -%}{%- set role = message['role'] -%}{%- endif -%}{{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}{%- if message['content'] is string -%}{{ message['content'] | trim }}{%- elif message['content'] is iterable -%}{%- for item in message['content'] -%}{%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}{%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}{%- endfor -%}{%- endif -%}{{ '<end_of_turn>\n' }}{%- endfor -%}{%- if add_generation_prompt -%}{{'<start_of_turn>model\n'}}{%- endif -%}"""
PICTURES = [("wide.png", 61, 40), ("tall.png", 30, 77), ("plain.png", 32, 32), ("tiny.png", 9, 6)]
CHATS = [
    [["wide.png", "What is this?"]],
    [["What is this?", "tall.png"]],
    [["tiny.png", "plain.png", "Which one?"]],
    [["plain.png", "tiny.png", "Which one?"]],
    [["Compare", "plain.png", "with"]],
    [["plain.png", "What is this?"], "a plain one", ["And", "wide.png", "?"]],
    [["No picture"]],
]


def write_tokenizer(folder):
    added = [{"id": i, "content": name, "special": True, "lstrip": False, "rstrip": False, "single_word": False,
              "normalized": False} for name, i in ID_OF.items()]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    vocabulary = {c: b for b, c in byte_alphabet().items()} | {line: 256 + i for i, line in enumerate(LINES)}
    file = folder / "made.json"
    file.write_text(json.dumps({
        "version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": level, "post_processor": None,
        "decoder": level, "model": {"type": "BPE", "vocab": vocabulary, "merges": ["Ċ Ċ", "ĊĊ Ċ"]}}))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(file), bos_token="<bos>", eos_token="<eos>", pad_token="<pad>",
        extra_special_tokens={"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"})
    file.unlink()
    return tokenizer


def answer(model, processor, messages):
    """What the whole pipeline of transformers reads and writes: greedy, and never two ids nearly alike."""
    given = processor.apply_chat_template(messages, tokenize=True, return_dict=True, return_tensors="pt",
                                          add_generation_prompt=True)
    ids, kinds, written, logprobs = given["input_ids"], given["token_type_ids"], [], []
    extra = {"pixel_values": given["pixel_values"]} if "pixel_values" in given else {}
    assert int((ids == ID_OF["<image_soft_token>"]).sum()) == ROWS * len(extra.get("pixel_values", []))
    while len(written) < NEW and written[-1:] != [ID_OF["<end_of_turn>"]]:
        more = torch.tensor([written], dtype=torch.long)
        with torch.no_grad():
            row = model(input_ids=torch.cat([ids, more], 1), token_type_ids=torch.cat([kinds, 0 * more], 1), **extra).logits[0, -1]
        best = torch.topk(row, 2)
        assert best.values[0] - best.values[1] > 1e-3, "another seed: two ids are nearly alike"
        written.append(int(best.indices[0]))
        logprobs.append(float(torch.log_softmax(row.double(), 0).max()))
    return ids.shape[1], processor.tokenizer.decode(written, skip_special_tokens=True), logprobs


def gemma3_served():
    text = dict(TEXT, vocab_size=256 + len(LINES) + len(NAMED), max_position_embeddings=512, num_hidden_layers=2,
                sliding_window=6, layer_types=["sliding_attention", "full_attention"], bos_token_id=ID_OF["<bos>"],
                eos_token_id=ID_OF["<end_of_turn>"], pad_token_id=ID_OF["<pad>"])
    config = Gemma3Config(text_config=text, vision_config=TOWER, mm_tokens_per_image=ROWS, tie_word_embeddings=False,
                          image_token_index=ID_OF["<image_soft_token>"], boi_token_index=ID_OF["<start_of_image>"],
                          eoi_token_index=ID_OF["<end_of_image>"], eos_token_id=ID_OF["<end_of_turn>"])
    config._attn_implementation = "eager"
    model = fill(Gemma3ForConditionalGeneration(config), 9)
    with torch.no_grad():  # letters are drawn, and the end sooner or later
        letters = torch.zeros(text["vocab_size"], 1)
        letters[ord("a"):ord("z") + 1] = 5
        model.lm_head.weight.mul_(letters)
        model.lm_head.weight[ID_OF["<end_of_turn>"]] = -10 * model.lm_head.weight[ord("a"):ord("z") + 1].mean(0)
    folder = OUT.parent / "gemma3_served"
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokenizer = write_tokenizer(folder)
    images = Gemma3ImageProcessorPil(size={"height": TOWER["image_size"], "width": TOWER["image_size"]})
    processor = Gemma3Processor(image_processor=images, tokenizer=tokenizer, chat_template=TEMPLATE, image_seq_length=ROWS)
    processor.save_pretrained(folder)
    written = json.loads((folder / "processor_config.json").read_text())
    written["image_processor"]["image_processor_type"] = "Gemma3ImageProcessorPil"  # the back end that made the answers
    (folder / "processor_config.json").write_text(json.dumps(written, indent=1) + "\n")
    pictures = {f: make_picture(folder / f, w, h, i) for i, (f, w, h) in enumerate(PICTURES)}
    cases = []
    for turns in CHATS:
        messages = []
        for i, turn in enumerate(turns):
            parts = [turn] if i % 2 else turn
            content = [{"type": "image", "image": pictures[p]} if p in pictures else {"type": "text", "text": p} for p in parts]
            messages.append({"role": "assistant" if i % 2 else "user", "content": content})
        n, written, logprobs = answer(model, processor, messages)
        cases.append({"turns": turns, "prompt_tokens": n, "answer": written, "logprobs": logprobs})
    (folder / "answers.json").write_text(json.dumps(cases) + "\n")
    for file in folder.iterdir():
        file.chmod(0o644)


ALL = {"gemma3_a": gemma3_a, "gemma3_b": gemma3_b, "gemma3_served": gemma3_served}
for name in sys.argv[1:] or ALL:
    ALL[name]()
