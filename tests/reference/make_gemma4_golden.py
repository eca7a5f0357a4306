"""Writes tests/golden/vision/gemma4_a and gemma4_b: tiny random models of transformers' Gemma4ForConditionalGeneration, with
logits of texts without and with pictures, and a greedy continuation; and tests/golden/gemma4_served, a folder as it is
downloaded, with what transformers answers to chats about pictures.

    pip install torch torchvision transformers==5.23.0 safetensors numpy pillow
    python tests/reference/make_gemma4_golden.py [NAME ...]

Models run in f32 with eager attention. gemma4_a has inputs of tokens for each layer, layers that read keys and values of
others, and a tower that cuts off what its products read and give, each at its own bounds; rows of a picture see those before
them. gemma4_b has experts, values that are keys and a tower that standardizes its rows, and rows of a picture see each other
in layers with a window. Texts have an id for each row of a picture, as the processor makes them; pictures are [3, height,
width] from 0 to 1, as the processor has them before it cuts them into patches. Nothing is patched.
"""
import sys

import numpy as np
import torch
from pictured_models import (NEW, OUT, answer_chats, byte_tokenizer, fill_with, ids_behind_bytes, make_pictures, make_whole, messages_of,
                             open_tokenizer, prefer_letters, write_answer, write_answers, write_folder)
from transformers import (Gemma4AudioFeatureExtractor, Gemma4Config, Gemma4ForConditionalGeneration, Gemma4ImageProcessor,
                          Gemma4Processor, Gemma4VideoProcessor)

VOCAB, AUDIO, VIDEO, BEGIN, END, IMAGE = 64, 58, 59, 60, 61, 62
PATCH, POOL = 2, 3
SLIDING, FULL = "sliding_attention", "full_attention"
TEXT = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
            global_head_dim=24, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=3,
            final_logit_softcapping=30.0)
DENSE = dict(TEXT, num_hidden_layers=5, layer_types=[SLIDING, FULL, SLIDING, SLIDING, FULL], sliding_window=6,
             num_kv_shared_layers=2, hidden_size_per_layer_input=8, vocab_size_per_layer_input=VOCAB)
ROUTED = dict(TEXT, num_hidden_layers=3, layer_types=[SLIDING, FULL, FULL], sliding_window=7, hidden_size_per_layer_input=0,
              attention_k_eq_v=True, num_global_key_value_heads=2, use_bidirectional_attention="vision", enable_moe_block=True,
              num_experts=4, top_k_experts=2, moe_intermediate_size=16)
TOWER = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
             patch_size=PATCH, pooling_kernel_size=POOL, position_embedding_size=40)
IDS = dict(image_token_id=IMAGE, video_token_id=VIDEO, audio_token_id=AUDIO, boi_token_id=BEGIN, eoi_token_id=END)


def numbers_of(name, p, z):
    """No norm's weight is what training begins with, and every bound cuts off some numbers."""
    if name.endswith(("_min", "_max")):
        side = 0.6 + 0.5 * np.abs(z) if "input" in name else 0.9 + 0.9 * np.abs(z)
        return side if name.endswith("max") else -side
    if "norm" in name or "scale" in name or name.endswith("layer_scalar"):
        return 1 + 0.25 * z
    if "std_bias" in name or "position_embedding_table" in name:
        return 0.6 * z
    if "embed_tokens" in name:
        return 0.1 * z
    return (3 if "router" in name else 1) * z / np.sqrt(p.shape[-1])


def fill(model, seed):
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return fill_with(model, seed, numbers_of, [t for t in tensors if "inv_freq" not in t[0] and "embed_scale" not in t[0]])


def picture(height, width, seed):
    """Of so many lines and columns of rows."""
    side = PATCH * POOL
    return np.random.Generator(np.random.PCG64(seed)).random((3, side * height, side * width)).astype(np.float32)


def cut(pixels):
    """The processor's patches of one picture, and the column and line of each."""
    _, height, width = pixels.shape
    lines, columns = height // PATCH, width // PATCH
    patches = pixels.reshape(3, lines, PATCH, columns, PATCH).transpose(1, 3, 2, 4, 0).reshape(lines * columns, -1)
    places = np.stack(np.meshgrid(np.arange(columns), np.arange(lines)), -1).reshape(-1, 2)
    return patches, places


def fill_up(parts, value):
    """One batch, whose shorter members end in `value`."""
    most = max(len(p) for p in parts)
    return np.stack([np.concatenate([p, np.full((most - len(p), p.shape[1]), value, p.dtype)]) for p in parts])


def expand(text, pixels):
    """IMAGE becomes as many ids as the picture has rows."""
    ids, sizes = [], [p.shape[1] * p.shape[2] // (PATCH * POOL) ** 2 for p in pixels]
    for id in text:
        ids += [IMAGE] * sizes.pop(0) if id == IMAGE else [id]
    assert not sizes
    return ids


def seen_by(ids, pixels):
    if not pixels:
        return {}
    patches, places = zip(*(cut(p) for p in pixels))
    return {"pixel_values": torch.from_numpy(fill_up(patches, np.float32(0))),
            "image_position_ids": torch.from_numpy(fill_up(places, -1)), "mm_token_type_ids": (ids == IMAGE).long()}


def run(model, ids, pixels):
    ids = torch.tensor([ids])
    with torch.no_grad():
        return model(input_ids=ids, **seen_by(ids, pixels)).logits.numpy()


A, B, C = picture(2, 4, 1), picture(1, 6, 2), picture(3, 3, 3)
CASES = {
    "text": ([5, 9, 17, 7, 8, 11, 3, 40, 41, 42], []),
    "one": ([5, 9, BEGIN, IMAGE, END, 7, 8, 11, 3], [A]),
    "first": ([BEGIN, IMAGE, END, 4, 6, 13], [C]),
    "last": ([4, 6, 13, BEGIN, IMAGE], [B]),
    "two": ([5, BEGIN, IMAGE, END, 20, 21, 33, BEGIN, IMAGE, END, 40, 12], [B, C]),
}


def is_steady(model, text, pixels):
    """Whether weights rounded to bf16 change no logit much: no row chooses other experts."""
    asked = [(text, pixels), *((expand(*case), case[1]) for case in CASES.values())]
    exact, stored = [run(model, *case) for case in asked], {k: v.clone() for k, v in model.state_dict().items()}
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.bfloat16().float())
    change = max(np.abs(run(model, *case) - row).max() for case, row in zip(asked, exact))
    model.load_state_dict(stored)
    return change < 0.15


def check_generate(model, prompt, pixels, tokens):
    """With a cache transformers draws the same."""
    ids = torch.tensor([prompt])
    out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **seen_by(ids, pixels), max_new_tokens=NEW,
                         do_sample=False, eos_token_id=None)
    return out[0, len(prompt):].tolist() == tokens.tolist()


def make(name, text, **tower):
    config = Gemma4Config(text_config=text, vision_config=dict(TOWER, **tower), audio_config=None, **IDS)
    config._attn_implementation = "eager"
    model = Gemma4ForConditionalGeneration(config)

    def accept(prompt, pixels, tokens):
        if not is_steady(model, [*prompt, *tokens.tolist()], pixels):
            return False
        assert check_generate(model, prompt, pixels, tokens)
        return True

    make_whole(OUT / name, model, fill, CASES, expand, run, [IMAGE, VIDEO, AUDIO], accept=accept)


def gemma4_a():
    make("gemma4_a", DENSE, use_clipped_linears=True)


def gemma4_b():
    make("gemma4_b", ROUTED, standardize=True)


# Chats.

NAMED = ["<bos>", "<eos>", "<pad>", "<|turn>", "<turn|>", "<|image>", "<image|>", "<|image|>", "<|audio>", "<audio|>", "<|audio|>",
         "<|video|>"]
ID_OF = ids_behind_bytes(NAMED)  # behind the bytes
TEMPLATE = """{{ bos_token }}{%- for message in messages -%}{{ '<|turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\n' }}{%- if message['content'] is string -%}{{ message['content'] | trim }}{%- else -%}{%- for item in message['content'] -%}{%- if item['type'] == 'image' -%}{{ '\n\n<|image|>\n\n' }}{%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}{%- endfor -%}{%- endif -%}{{ '<turn|>\n' }}{%- endfor -%}{%- if add_generation_prompt -%}{{ '<|turn>model\n' }}{%- endif -%}"""
PICTURES = [("wide.png", 61, 40), ("tall.png", 30, 77), ("plain.png", 48, 48), ("tiny.png", 9, 6), ("long.png", 230, 2)]
CHATS = [
    [["wide.png", "What is this?"]],
    [["What is this?", "tall.png"]],
    [["tiny.png", "plain.png", "Which one?"]],
    [["long.png", "tiny.png", "Which one?"]],
    [["Compare", "plain.png", "with"]],
    [["plain.png", "What is this?"], "a plain one", ["And", "wide.png", "?"]],
    [["No picture"]],
]


def answer(model, processor, messages):
    """What the whole pipeline of transformers reads and writes: greedy, and never two ids nearly alike. None where another seed
    is needed, for an answer that is too short, too."""
    given = processor.apply_chat_template(messages, tokenize=True, return_dict=True, return_tensors="pt",
                                          add_generation_prompt=True)
    ids, kinds = given["input_ids"], given["mm_token_type_ids"]
    extra = {k: given[k] for k in ("pixel_values", "image_position_ids") if k in given}

    def row_of(more):
        return model(input_ids=torch.cat([ids, more], 1), mm_token_type_ids=torch.cat([kinds, 0 * more], 1), **extra).logits[0, -1]

    made = write_answer(row_of, ID_OF["<turn|>"])
    if made is None or len(made[0]) < 3:
        return None
    return ids.shape[1], processor.tokenizer.decode(made[0], skip_special_tokens=True), made[1]


def gemma4_served():
    n = 256 + len(NAMED)
    text = dict(DENSE, vocab_size=n, vocab_size_per_layer_input=n, max_position_embeddings=512, num_hidden_layers=3,
                layer_types=[SLIDING, FULL, FULL], num_kv_shared_layers=1, use_bidirectional_attention="vision",
                bos_token_id=ID_OF["<bos>"], eos_token_id=ID_OF["<turn|>"], pad_token_id=ID_OF["<pad>"], tie_word_embeddings=False)
    config = Gemma4Config(
        text_config=text, vision_config=dict(TOWER, position_embedding_size=210), audio_config=None, tie_word_embeddings=False,
        image_token_id=ID_OF["<|image|>"], video_token_id=ID_OF["<|video|>"], audio_token_id=ID_OF["<|audio|>"],
        boi_token_id=ID_OF["<|image>"], eoi_token_id=ID_OF["<image|>"], eos_token_id=ID_OF["<turn|>"])
    config._attn_implementation = "eager"
    folder = OUT.parent / "gemma4_served"
    folder.mkdir(exist_ok=True)
    tokenizer = open_tokenizer(folder, byte_tokenizer(ID_OF), bos_token="<bos>", eos_token="<eos>", pad_token="<pad>",
                               extra_special_tokens={"boi_token": "<|image>", "eoi_token": "<image|>", "image_token": "<|image|>",
                                                     "boa_token": "<|audio>", "eoa_token": "<audio|>", "audio_token": "<|audio|>"})
    images = Gemma4ImageProcessor(patch_size=PATCH, pooling_kernel_size=POOL, max_soft_tokens=70)
    processor = Gemma4Processor(feature_extractor=Gemma4AudioFeatureExtractor(), image_processor=images, tokenizer=tokenizer,
                                video_processor=Gemma4VideoProcessor(), chat_template=TEMPLATE, image_seq_length=70)
    pictures = make_pictures(folder, PICTURES)
    seed, cases = 0, None
    while cases is None:
        seed += 1
        model = prefer_letters(fill(Gemma4ForConditionalGeneration(config), seed), ID_OF["<turn|>"])
        cases = answer_chats(CHATS, lambda turns: answer(model, processor, messages_of(turns, pictures)))
    write_folder(folder, model)
    make_pictures(folder, PICTURES)
    processor.save_pretrained(folder)
    write_answers(folder, cases)


ALL = {"gemma4_a": gemma4_a, "gemma4_b": gemma4_b, "gemma4_served": gemma4_served}
for name in sys.argv[1:] or ALL:
    ALL[name]()
