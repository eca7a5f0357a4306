"""Writes tests/golden/vision/mistral3, ministral3_vl, mistral4_vl, pixtral and hf_pixtral: tiny random models of transformers' own classes with
Pixtral's tower, with logits of texts without and with pictures, and a greedy continuation, and of the tower alone its rows; and
tests/golden/mistral3_served, a folder as it is downloaded, with what transformers answers to chats about pictures.

    pip install torch transformers==5.23.0 safetensors numpy pillow torchvision
    python tests/reference/make_pixtral_golden.py [NAME ...]

Models run in f32 with eager attention. mistral3 is Mistral3ForConditionalGeneration with the decoder of Mistral, written with the
keys and names that the Hub's folders have; ministral3_vl the same with that of Ministral 3, as save_pretrained of transformers 5
writes it; pixtral is LlavaForConditionalGeneration with Pixtral's tower, as the Hub has Pixtral 12B. Texts have an id for each row
of a picture and behind each line another, as the processor makes them; pictures are [3, height, width]. Nothing is patched.
"""
import json
import sys

import numpy as np
import torch
from pictured_models import (OUT, answer_chats, apart, byte_tokenizer, fill_with, ids_behind_bytes, make_pictures, make_whole, messages_of,
                             name_processor, noise as picture, open_tokenizer, prefer_letters, write_answer, write_answers, write_folder)
from transformers import (LlavaConfig, LlavaForConditionalGeneration, Mistral3Config, Mistral3ForConditionalGeneration,
                          PixtralProcessor, PixtralVisionConfig, PixtralVisionModel)
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

VOCAB, IMAGE, BREAK, END = 64, 10, 12, 13
PATCH = 4
TEXT = dict(model_type="mistral", vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, max_position_embeddings=256, sliding_window=None, rms_norm_eps=1e-5,
            bos_token_id=1, eos_token_id=2, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32.0,
        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}
TEXT_3 = dict(TEXT, model_type="ministral3", rope_parameters=YARN)
TEXT_4 = {key: value for key, value in TEXT.items() if key not in ("head_dim", "sliding_window")} | dict(
    model_type="mistral4", num_key_value_heads=4, kv_lora_rank=24, q_lora_rank=20, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=20,
    n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, rope_parameters=YARN)
TOWER = dict(model_type="pixtral", hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=64,
             patch_size=PATCH, hidden_act="silu")


def numbers_of(name, p, z):
    """No norm's weight is one."""
    if "norm" in name or "ln_pre" in name:
        return 1 + 0.25 * z
    if name.endswith("bias"):
        return 0.2 * z
    if "embed_tokens" in name or "lm_head" in name:
        return 0.3 * z
    return z / np.sqrt(np.prod(p.shape[1:]))


def fill(model, seed):
    return fill_with(model, seed, numbers_of)


def expand(text, pixels, merge):
    """IMAGE becomes the ids of a picture's lines, as PixtralProcessor.replace_image_token has them."""
    ids, left = [], list(pixels)
    for id in text:
        if id != IMAGE:
            ids.append(id)
            continue
        rows, columns = (side // (PATCH * merge) for side in left.pop(0).shape[1:])
        ids += ([IMAGE] * columns + [BREAK]) * rows
        ids[-1] = END
    assert not left
    return ids


def pack(pixels):
    """Pictures of several sizes, filled up to one, and their sizes, as the image processor gives them."""
    height, width = (max(p.shape[i] for p in pixels) for i in (1, 2))
    filled = [np.pad(p, ((0, 0), (0, height - p.shape[1]), (0, width - p.shape[2]))) for p in pixels]
    return {"pixel_values": torch.from_numpy(np.stack(filled)), "image_sizes": torch.tensor([p.shape[1:] for p in pixels])}


def run(model, ids, pixels):
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), **(pack(pixels) if pixels else {})).logits.numpy()


A, B, C = picture(16, 24, 1), picture(8, 40, 2), picture(24, 8, 3)
CASES = {
    "text": ([5, 9, 17, 7, 8, 11, 3, 40, 41, 42], []),
    "one": ([5, 9, IMAGE, 7, 8, 11, 3], [A]),
    "first": ([IMAGE, 4, 6, 33], [C]),
    "last": ([4, 6, 33, IMAGE], [B]),
    "two": ([5, IMAGE, 20, 21, 33, IMAGE, 40, 22], [B, A]),
}


def make(name, model, merge, texts=CASES):
    return make_whole(OUT / name, model, fill, texts, lambda text, pixels: expand(text, pixels, merge), run, [IMAGE])


def as_published(folder, model_type):
    """config.json as the Hub has it: without what transformers 5 adds."""
    config = json.loads((folder / "config.json").read_text())
    text, tower = config["text_config"], config["vision_config"]
    text["rope_theta"] = text.pop("rope_parameters")["rope_theta"]
    tower["rope_theta"] = tower.pop("rope_parameters")["rope_theta"]
    for part in (config, text, tower):
        for key in ("dtype", "layer_types", "pad_token_id", "tie_word_embeddings", "transformers_version"):
            part.pop(key, None)
    assert config["model_type"] == model_type
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def mistral3():
    config = Mistral3Config(text_config=TEXT, vision_config=TOWER, spatial_merge_size=2, image_token_index=IMAGE,
                            tie_word_embeddings=False)
    config._attn_implementation = "eager"
    as_published(make("mistral3", Mistral3ForConditionalGeneration(config), 2), "mistral3")


def ministral3_vl():
    """Tied, with an epsilon of the text's own and biases of the projector."""
    config = Mistral3Config(text_config=dict(TEXT_3, rms_norm_eps=1e-3, tie_word_embeddings=True), vision_config=TOWER,
                            spatial_merge_size=2, image_token_index=IMAGE, tie_word_embeddings=True, multimodal_projector_bias=True)
    config._attn_implementation = "eager"
    make("ministral3_vl", Mistral3ForConditionalGeneration(config), 2)


def mistral4_vl():
    """With the text part of Mistral Small 4, whose experts lie stacked."""
    config = Mistral3Config(text_config=TEXT_4, vision_config=TOWER, spatial_merge_size=2, image_token_index=IMAGE, tie_word_embeddings=False)
    config._attn_implementation = "eager"
    make("mistral4_vl", Mistral3ForConditionalGeneration(config), 2)


def pixtral():
    """Of odd numbers of patches, too."""
    config = LlavaConfig(text_config=TEXT, vision_config=dict(TOWER, patch_size=PATCH, hidden_act="gelu"), image_token_index=IMAGE,
                         vision_feature_layer=-1, vision_feature_select_strategy="full", projector_hidden_act="gelu")
    config._attn_implementation = "eager"
    odd = picture(20, 12, 4), picture(4, 28, 5), picture(12, 4, 6)
    swap = {id(A): odd[0], id(B): odd[1], id(C): odd[2]}
    cases = {name: (text, [swap[id(p)] for p in pixels]) for name, (text, pixels) in CASES.items()}
    as_published(make("pixtral", LlavaForConditionalGeneration(config), 1, cases), "llava")


def hf_pixtral():
    config = PixtralVisionConfig(**{k: v for k, v in TOWER.items() if k != "model_type"})
    config._attn_implementation = "eager"
    model = fill(PixtralVisionModel(config), 1)
    cases = {}
    for case, pixels in {"one": [A], "odd": [picture(12, 20, 7)], "three": [C, B, A]}.items():
        with torch.no_grad():
            rows = model(**pack(pixels)).last_hidden_state[0].numpy()
        cases |= {f"{case}.last_hidden_state": rows} | apart(case, pixels)
    write_folder(OUT / "hf_pixtral", model, {"cases": cases})


# Chats.

SERVED_SEED = 6  # answers are neither empty nor near others
NAMED = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[IMG]", "[IMG_BREAK]", "[IMG_END]", "<pad>"]
ID_OF = ids_behind_bytes(NAMED)  # behind the bytes
TEMPLATE = """{{- bos_token }}{%- for message in messages %}{%- if message['role'] == 'system' %}{{- '[SYSTEM_PROMPT]' + (message['content'] if message['content'] is string else message['content'][0]['text']) + '[/SYSTEM_PROMPT]' }}{%- elif message['role'] == 'user' %}{%- if message['content'] is string %}{{- '[INST]' + message['content'] + '[/INST]' }}{%- else %}{{- '[INST]' }}{%- for block in message['content'] %}{%- if block['type'] == 'text' %}{{- block['text'] }}{%- elif block['type'] in ['image', 'image_url'] %}{{- '[IMG]' }}{%- else %}{{- raise_exception('Only text and image blocks are supported in message content!') }}{%- endif %}{%- endfor %}{{- '[/INST]' }}{%- endif %}{%- elif message['role'] == 'assistant' %}{{- (message['content'] if message['content'] is string else message['content'][0]['text']) + eos_token }}{%- else %}{{- raise_exception('Only user, system and assistant roles are supported!') }}{%- endif %}{%- endfor %}"""
PICTURES = [("wide.png", 61, 40), ("tall.png", 30, 77), ("plain.png", 32, 32), ("tiny.png", 9, 6), ("long.png", 130, 14)]
CHATS = [
    [["wide.png", "What is this?"]],
    [["What is this?", "tall.png"]],
    [["tiny.png", "long.png", "Which one?"]],
    [["long.png", "tiny.png", "Which one?"]],
    [["Compare", "plain.png", "with"]],
    [["plain.png", "What is this?"], "a plain one", ["And", "wide.png", "?"]],
    [["No picture"]],
]


def answer(model, processor, messages):
    """What the whole pipeline of transformers reads and writes: greedy, and never two ids nearly alike."""
    given = processor.apply_chat_template(messages, tokenize=True, return_dict=True, return_tensors="pt")
    ids, extra = given["input_ids"], {k: given[k] for k in ("pixel_values", "image_sizes") if k in given}
    made = write_answer(lambda more: model(input_ids=torch.cat([ids, more], 1), **extra).logits[0, -1], ID_OF["</s>"])
    return made and (ids.shape[1], processor.tokenizer.decode(made[0], skip_special_tokens=True), made[1])


def mistral3_served():
    """Pictures are resized by Pillow, and the folder says so: save_pretrained leaves the ending out."""
    text = dict(TEXT, vocab_size=256 + len(NAMED), max_position_embeddings=512, bos_token_id=ID_OF["<s>"], eos_token_id=ID_OF["</s>"])
    config = Mistral3Config(text_config=text, vision_config=TOWER, spatial_merge_size=2, image_token_index=ID_OF["[IMG]"],
                            tie_word_embeddings=False)
    config._attn_implementation = "eager"
    model = fill(Mistral3ForConditionalGeneration(config), SERVED_SEED)
    folder = write_folder(OUT.parent / "mistral3_served", prefer_letters(model, ID_OF["</s>"]))
    tokenizer = open_tokenizer(folder, byte_tokenizer(ID_OF), bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    images = PixtralImageProcessorPil(size={"longest_edge": 64}, patch_size={"height": PATCH, "width": PATCH})
    processor = PixtralProcessor(image_processor=images, tokenizer=tokenizer, patch_size=PATCH, spatial_merge_size=2,
                                 chat_template=TEMPLATE)
    processor.save_pretrained(folder)
    name_processor(folder, "PixtralImageProcessorPil")
    pictures = make_pictures(folder, PICTURES)
    write_answers(folder, answer_chats(CHATS, lambda turns: answer(model, processor, messages_of(turns, pictures))))


ALL = {"mistral3": mistral3, "ministral3_vl": ministral3_vl, "mistral4_vl": mistral4_vl, "pixtral": pixtral, "hf_pixtral": hf_pixtral,
       "mistral3_served": mistral3_served}
for name in sys.argv[1:] or ALL:
    ALL[name]()
