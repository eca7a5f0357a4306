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
import sys

import numpy as np
import torch
from pictured_models import (NEW, OUT, answer_chats, byte_tokenizer, fill_with, ids_behind_bytes, make_pictures, make_whole, messages_of,
                             name_processor, noise, open_tokenizer, prefer_letters, write_answer, write_answers, write_folder)
from transformers import Gemma3Config, Gemma3ForConditionalGeneration, Gemma3ImageProcessorPil, Gemma3Processor

VOCAB, BEGIN, END, IMAGE = 64, 60, 61, 62
TEXT = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2,
            head_dim=16, query_pre_attn_scalar=16, max_position_embeddings=256, eos_token_id=2, bos_token_id=1)
TOWER = dict(model_type="siglip_vision_model", hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
             image_size=32, patch_size=4, vision_use_head=False)
IDS = dict(image_token_index=IMAGE, boi_token_index=BEGIN, eoi_token_index=END)


def numbers_of(name, p, z):
    """Every bias is non-zero, no norm's weight is what training begins with."""
    if "layer_norm" in name or "post_layernorm" in name:
        return 1 + 0.25 * z if name.endswith("weight") else 0.2 * z
    if "norm" in name:
        return 0.25 * z
    if name.endswith("bias") or "embed_tokens" in name:
        return 0.2 * z
    if "mm_input_projection" in name:
        return 1.2 * z / np.sqrt(p.shape[0])
    if "position" in name:
        return 0.6 * z
    return 1.3 * z / np.sqrt(np.prod(p.shape[1:]))


def fill(model, seed):
    return fill_with(model, seed, numbers_of)


def picture(seed):
    return noise(TOWER["image_size"], TOWER["image_size"], seed)


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


def check_generate(model, prompt, pixels, tokens):
    """With a cache transformers draws the same."""
    ids = torch.tensor([prompt])
    out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), token_type_ids=(ids == IMAGE).long(),
                         pixel_values=torch.from_numpy(np.stack(pixels)), max_new_tokens=NEW, do_sample=False, eos_token_id=None)
    return out[0, len(prompt):].tolist() == tokens.tolist()


def make(name, text, rows):
    config = Gemma3Config(text_config=dict(TEXT, **text), vision_config=TOWER, mm_tokens_per_image=rows, **IDS)
    config._attn_implementation = "eager"
    model = Gemma3ForConditionalGeneration(config)

    def accept(*made):
        assert check_generate(model, *made)
        return True

    def stacked(case, pixels):
        return {f"{case}.pixel_values": np.stack(pixels)} if pixels else {}

    return make_whole(OUT / name, model, fill, CASES, lambda text, pixels: expand(text, rows), run, [IMAGE], stacked, accept)


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
ID_OF = ids_behind_bytes(NAMED, LINES)
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


def answer(model, processor, messages):
    """What the whole pipeline of transformers reads and writes: greedy, and never two ids nearly alike."""
    given = processor.apply_chat_template(messages, tokenize=True, return_dict=True, return_tensors="pt",
                                          add_generation_prompt=True)
    ids, kinds = given["input_ids"], given["token_type_ids"]
    extra = {"pixel_values": given["pixel_values"]} if "pixel_values" in given else {}
    assert int((ids == ID_OF["<image_soft_token>"]).sum()) == ROWS * len(extra.get("pixel_values", []))

    def row_of(more):
        return model(input_ids=torch.cat([ids, more], 1), token_type_ids=torch.cat([kinds, 0 * more], 1), **extra).logits[0, -1]

    made = write_answer(row_of, ID_OF["<end_of_turn>"])
    return made and (ids.shape[1], processor.tokenizer.decode(made[0], skip_special_tokens=True), made[1])


def gemma3_served():
    text = dict(TEXT, vocab_size=256 + len(LINES) + len(NAMED), max_position_embeddings=512, num_hidden_layers=2,
                sliding_window=6, layer_types=["sliding_attention", "full_attention"], bos_token_id=ID_OF["<bos>"],
                eos_token_id=ID_OF["<end_of_turn>"], pad_token_id=ID_OF["<pad>"])
    config = Gemma3Config(text_config=text, vision_config=TOWER, mm_tokens_per_image=ROWS, tie_word_embeddings=False,
                          image_token_index=ID_OF["<image_soft_token>"], boi_token_index=ID_OF["<start_of_image>"],
                          eoi_token_index=ID_OF["<end_of_image>"], eos_token_id=ID_OF["<end_of_turn>"])
    config._attn_implementation = "eager"
    model = fill(Gemma3ForConditionalGeneration(config), 9)
    prefer_letters(model, ID_OF["<end_of_turn>"])
    folder = write_folder(OUT.parent / "gemma3_served", model)
    tokenizer = open_tokenizer(folder, byte_tokenizer(ID_OF, LINES, ["Ċ Ċ", "ĊĊ Ċ"]), bos_token="<bos>", eos_token="<eos>",
                               pad_token="<pad>", extra_special_tokens={"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>",
                                                                        "image_token": "<image_soft_token>"})
    images = Gemma3ImageProcessorPil(size={"height": TOWER["image_size"], "width": TOWER["image_size"]})
    processor = Gemma3Processor(image_processor=images, tokenizer=tokenizer, chat_template=TEMPLATE, image_seq_length=ROWS)
    processor.save_pretrained(folder)
    name_processor(folder, "Gemma3ImageProcessorPil")
    pictures = make_pictures(folder, PICTURES)
    write_answers(folder, answer_chats(CHATS, lambda turns: answer(model, processor, messages_of(turns, pictures))))


ALL = {"gemma3_a": gemma3_a, "gemma3_b": gemma3_b, "gemma3_served": gemma3_served}
for name in sys.argv[1:] or ALL:
    ALL[name]()
