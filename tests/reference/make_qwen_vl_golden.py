"""Writes tests/golden/vision/qwen2_vl, qwen2_5_vl, qwen3_vl, qwen3_vl_moe, qwen3_5 and qwen3_5_moe: tiny random models of transformers' own
classes, with logits of texts without and with pictures, and a greedy continuation; and tests/golden/qwen_vl_served, qwen3_vl_served and
qwen3_5_served, folders as they are downloaded, with what transformers answers to chats about pictures.

    pip install torch transformers==5.23.0 safetensors numpy pillow torchvision
    python tests/reference/make_qwen_vl_golden.py [NAME ...]

Models run in f32 with eager attention. qwen2_vl is written as the Hub has it (the text's keys beside vision_config, "mrope",
a tied output), so are qwen3_vl and qwen3_vl_moe (rope_scaling in text_config, each expert [in, out]) and qwen3_5, qwen2_5_vl and qwen3_5_moe as save_pretrained of transformers 5 nests them. Texts have an id for each row of a picture, as the
processor makes them; pictures are [3, height, width], as the processor has them before it cuts them into patches. Nothing
is patched.
"""
import json
import sys

import numpy as np
import torch
from pictured_models import (OUT, answer_chats, apart, byte_tokenizer, fill_with, ids_behind_bytes, make_pictures, make_whole, noise as picture,
                             prefer_letters, write_answer, write_answers, write_folder)
from safetensors.numpy import load_file, save_file
from transformers import (PreTrainedTokenizerFast, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2VLConfig,
                          Qwen2VLForConditionalGeneration, Qwen2VLImageProcessor, Qwen2VLImageProcessorPil, Qwen3_5Config,
                          Qwen3_5ForConditionalGeneration, Qwen3_5MoeConfig, Qwen3_5MoeForConditionalGeneration, Qwen3VLConfig,
                          Qwen3VLForConditionalGeneration, Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration)

VOCAB, START, END, IMAGE, VIDEO = 64, 60, 61, 62, 63
PATCH, MERGE, FRAMES = 4, 2, 2
ROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
TEXT = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=256, bos_token_id=None, eos_token_id=2, rope_parameters=ROPE)
IDS = dict(image_token_id=IMAGE, video_token_id=VIDEO, vision_start_token_id=START, vision_end_token_id=END)
COMMON = dict(patch_size=PATCH, spatial_merge_size=MERGE, temporal_patch_size=FRAMES, num_heads=2, in_channels=3)
OLD = dict(COMMON, depth=2, embed_dim=16, hidden_size=32, mlp_ratio=2)
NEWER = dict(COMMON, depth=3, hidden_size=16, intermediate_size=24, out_hidden_size=32, window_size=16,
             fullatt_block_indexes=[1])
TURNS = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [3, 3, 2], "mrope_interleaved": True}
TEXT_3 = dict(TEXT, num_hidden_layers=3, num_attention_heads=4, head_dim=16, rope_parameters=TURNS)
TEXT_MOE = dict(TEXT_3, moe_intermediate_size=20, num_experts=5, num_experts_per_tok=2, mlp_only_layers=[1])
TOWER_3 = dict(COMMON, depth=3, hidden_size=16, intermediate_size=24, out_hidden_size=32, num_position_embeddings=36,
               deepstack_visual_indexes=[0, 2])
TOWER_35 = {key: value for key, value in TOWER_3.items() if key != "deepstack_visual_indexes"}
# Of 6 pairs of a head that turn, the last one would be the column's turn, which has one.
TURNS_35 = dict(TURNS, mrope_section=[3, 2, 1], partial_rotary_factor=0.75)
DELTA = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=12, linear_conv_kernel_dim=4)
TEXT_35 = dict(TEXT_3, **DELTA, num_hidden_layers=4, layer_types=["linear_attention", "full_attention"] * 2, rope_parameters=TURNS_35)
# Sections are the class's, of more pairs than turn.
TEXT_35_MOE = dict(TEXT_35, num_hidden_layers=3, layer_types=["full_attention", "linear_attention", "full_attention"], num_experts=5,
                   num_experts_per_tok=2, moe_intermediate_size=20, shared_expert_intermediate_size=12,
                   rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5})
del TEXT_35_MOE["intermediate_size"]


def fill(model, seed):
    """Every bias is non-zero, no norm weight is one."""
    around_one = model.config.model_type.startswith("qwen3_5")  # norms of the text, but for that within a delta net

    def numbers_of(name, p, z):
        if "norm" in name or name.endswith("ln_q.weight"):
            zero = around_one and "visual" not in name and not name.endswith("linear_attn.norm.weight")
            return (0 if zero else 1) + 0.25 * z if name.endswith("weight") else 0.2 * z
        if name.endswith("bias"):
            return 0.2 * z
        if name.endswith("A_log"):
            return z - 1.5
        if name.endswith("linear_attn.out_proj.weight"):  # behind a norm that makes small sums, and their rounding, large
            return 0.3 * z / np.sqrt(p.shape[-1])
        if "embed_tokens" in name or "lm_head" in name:
            return 0.3 * z
        if ".experts." in name:
            return 1.1 * z / np.sqrt(p.shape[-1])
        return 1.1 * z / np.sqrt(np.prod(p.shape[1:]))

    return fill_with(model, seed, numbers_of)


def cut(pixels):
    """The processor's patches of one picture, which stands still for FRAMES frames, and its grid."""
    _, height, width = pixels.shape
    rows, columns = height // PATCH, width // PATCH
    frames = np.stack([pixels] * FRAMES)
    cells = frames.reshape(FRAMES, 3, rows // MERGE, MERGE, PATCH, columns // MERGE, MERGE, PATCH)
    patches = cells.transpose(2, 5, 3, 6, 1, 0, 4, 7).reshape(rows * columns, -1)
    return torch.from_numpy(np.ascontiguousarray(patches)), [1, rows, columns]


def expand(text, pixels):
    """IMAGE becomes as many ids as the picture has rows."""
    ids, sizes = [], [p.shape[1] * p.shape[2] // (PATCH * MERGE) ** 2 for p in pixels]
    for id in text:
        ids += [IMAGE] * sizes.pop(0) if id == IMAGE else [id]
    assert not sizes
    return ids


def run(model, ids, pixels):
    ids = torch.tensor([ids])
    seen = [cut(p) for p in pixels]
    extra = {}
    if seen:
        extra = {"pixel_values": torch.cat([patches for patches, _ in seen]),
                 "image_grid_thw": torch.tensor([grid for _, grid in seen]),
                 "mm_token_type_ids": (ids == IMAGE).long()}
    with torch.no_grad():
        return model(input_ids=ids, **extra).logits.numpy()


A, B, C = picture(16, 24, 1), picture(8, 40, 2), picture(24, 24, 3)
CASES = {
    "text": ([5, 9, 17, 7, 8, 11, 3, 40, 41, 42], []),
    "one": ([5, 9, START, IMAGE, END, 7, 8, 11, 3], [A]),
    "first": ([START, IMAGE, END, 4, 6, 13], [C]),
    "two": ([5, START, IMAGE, END, 20, 21, 33, START, IMAGE, END, 40, 12], [B, A]),
}


def make(name, model):
    return make_whole(OUT / name, model, fill, CASES, expand, run, [IMAGE, VIDEO])


def make_yarn(folder, model):
    """One case with the same weights and YaRN's frequencies."""
    parameters = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    config = Qwen2VLConfig(text_config=dict(TEXT, rope_parameters=ROPE | parameters), vision_config=OLD,
                           tie_word_embeddings=True, **IDS)
    config._attn_implementation = "eager"
    yarn = Qwen2VLForConditionalGeneration(config).eval()
    yarn.load_state_dict(model.state_dict())
    text, pixels = CASES["two"]
    ids = expand(text, pixels)
    case = {"two.input_ids": np.array([ids], np.int32), "two.logits": run(yarn, ids, pixels)}
    case |= apart("two", pixels)
    save_file({k: np.ascontiguousarray(v) for k, v in case.items()}, folder / "yarn.safetensors")
    (folder / "yarn.safetensors").chmod(0o644)


def write_as_hub(folder):
    """config.json of the Hub's Qwen2-VL folders."""
    config = json.loads((folder / "config.json").read_text())
    text = config.pop("text_config")
    rope = text.pop("rope_parameters")
    config |= {k: v for k, v in text.items() if k not in ("model_type", "layer_types", "dtype")}
    config |= {"rope_theta": rope["rope_theta"], "rope_scaling": {"type": "mrope", "mrope_section": rope["mrope_section"]}}
    config["tie_word_embeddings"] = True
    config["vision_config"]["model_type"] = "qwen2_vl"
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def write_3_as_hub(folder):
    """config.json of the Hub's Qwen3-VL folders."""
    config = json.loads((folder / "config.json").read_text())
    text = config["text_config"]
    rope = text.pop("rope_parameters")
    text |= {"rope_theta": rope.pop("rope_theta"), "rope_scaling": rope}
    config["vision_config"]["model_type"] = config["model_type"]
    del config["vision_config"]["rope_parameters"]
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def qwen2_vl():
    config = Qwen2VLConfig(text_config=TEXT, vision_config=OLD, tie_word_embeddings=True, **IDS)
    config._attn_implementation = "eager"
    model = Qwen2VLForConditionalGeneration(config)
    folder = make("qwen2_vl", model)
    make_yarn(folder, model)
    write_as_hub(folder)


def qwen2_5_vl():
    config = Qwen2_5_VLConfig(text_config=TEXT, vision_config=NEWER, **IDS)
    config._attn_implementation = "eager"
    make("qwen2_5_vl", Qwen2_5_VLForConditionalGeneration(config))


def qwen3_vl():
    config = Qwen3VLConfig(text_config=TEXT_3, vision_config=TOWER_3, **IDS)
    config._attn_implementation = "eager"
    write_3_as_hub(make("qwen3_vl", Qwen3VLForConditionalGeneration(config)))


def turn_experts(folder):
    """Experts as published, [in, out]."""
    tensors = load_file(folder / "model.safetensors")
    for name, values in tensors.items():
        if ".experts." in name:
            tensors[name] = np.ascontiguousarray(values.swapaxes(1, 2))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)


def qwen3_vl_moe():
    config = Qwen3VLMoeConfig(text_config=TEXT_MOE, vision_config=TOWER_3, **IDS)
    config._attn_implementation = "eager"
    folder = make("qwen3_vl_moe", Qwen3VLMoeForConditionalGeneration(config))
    write_3_as_hub(folder)
    turn_experts(folder)


def write_3_5_as_hub(folder):
    """config.json of the Hub's Qwen3.5 folders, and a tensor of a layer that foretells tokens."""
    config = json.loads((folder / "config.json").read_text())
    config["vision_config"] |= {"model_type": config["model_type"], "deepstack_visual_indexes": []}
    del config["vision_config"]["rope_parameters"]
    config["text_config"] |= {"full_attention_interval": 2, "mtp_num_hidden_layers": 1, "attn_output_gate": True}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    tensors = load_file(folder / "model.safetensors") | {"mtp.fc.weight": np.zeros([2, 2], np.float32)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)


def qwen3_5():
    config = Qwen3_5Config(text_config=TEXT_35, vision_config=TOWER_35, **IDS)
    config._attn_implementation = "eager"
    write_3_5_as_hub(make("qwen3_5", Qwen3_5ForConditionalGeneration(config)))


def qwen3_5_moe():
    config = Qwen3_5MoeConfig(text_config=TEXT_35_MOE, vision_config=TOWER_35, tie_word_embeddings=True, **IDS)
    config._attn_implementation = "eager"
    make("qwen3_5_moe", Qwen3_5MoeForConditionalGeneration(config))


# Chats.

NAMED = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>", "<|endoftext|>"]
IDS_OF = ids_behind_bytes(NAMED)  # behind the bytes
TEMPLATE = """{% set image_count = namespace(value=0) %}{% set video_count = namespace(value=0) %}{% for message in messages %}{% if loop.first and message['role'] != 'system' %}<|im_start|>system
You are a helpful assistant.<|im_end|>
{% endif %}<|im_start|>{{ message['role'] }}
{% if message['content'] is string %}{{ message['content'] }}<|im_end|>
{% else %}{% for content in message['content'] %}{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}{% set image_count.value = image_count.value + 1 %}{% if add_vision_id %}Picture {{ image_count.value }}: {% endif %}<|vision_start|><|image_pad|><|vision_end|>{% elif content['type'] == 'video' or 'video' in content %}{% set video_count.value = video_count.value + 1 %}{% if add_vision_id %}Video {{ video_count.value }}: {% endif %}<|vision_start|><|video_pad|><|vision_end|>{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
# Parts are written by a macro, and what it writes is trimmed, as in published folders of Qwen3.5.
TEMPLATE_35 = """{% macro write(content) %}{% if content is string %}{{ content }}{% else %}{% for part in content %}{% if part.type == 'image' or 'image_url' in part %}<|vision_start|><|image_pad|><|vision_end|>{% elif 'text' in part %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{% endmacro %}{% for message in messages %}{% set content = write(message.content) | trim %}<|im_start|>{{ message.role }}
{{ content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
PICTURES = [("wide.png", 61, 40), ("tall.png", 30, 77), ("plain.png", 28, 28), ("tiny.png", 9, 6), ("long.png", 130, 14)]
CHATS = [
    [["wide.png", "What is this?"]],
    [["tall.png", "What is this?"]],
    [["tiny.png", "long.png", "Which one?"]],
    [["long.png", "tiny.png", "Which one?"]],
    [["Compare ", "plain.png", " with "]],
    [["plain.png", "What is this?"], "a plain one", ["And ", "wide.png", "?"]],
    [["No picture"]],
]


def write_tokenizer(folder, template):
    (folder / "tokenizer.json").write_text(byte_tokenizer(IDS_OF))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}))
    (folder / "chat_template.jinja").write_text(template)
    return PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), chat_template=template)


def answer(model, tokenizer, processor, messages, pictures):
    """What the whole pipeline of transformers reads and writes: greedy, and never two ids nearly alike."""
    image, given, rows = IDS_OF["<|image_pad|>"], {}, []
    if pictures:
        seen = processor(pictures, return_tensors="pt")
        given = {"pixel_values": seen["pixel_values"], "image_grid_thw": seen["image_grid_thw"]}
        rows = (given["image_grid_thw"].prod(1) // MERGE ** 2).tolist()
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids = []
    for id in tokenizer.encode(text, add_special_tokens=False):
        ids += [id] * rows.pop(0) if id == image else [id]

    def row_of(more):
        tokens = torch.cat([torch.tensor([ids]), more], 1)
        extra = dict(given, mm_token_type_ids=(tokens == image).long()) if given else {}
        return model(input_ids=tokens, **extra).logits[0, -1]

    made = write_answer(row_of, IDS_OF["<|im_end|>"])
    return made and (len(ids), tokenizer.decode(made[0], skip_special_tokens=True), made[1])


def messages_of(turns, pictures):
    """A chat whose parts do not hold the pictures, and these."""
    messages, seen = [], []
    for i, turn in enumerate(turns):
        content = turn if i % 2 else [{"type": "image"} if p in pictures else {"type": "text", "text": p} for p in turn]
        seen += [] if i % 2 else [pictures[p] for p in turn if p in pictures]
        messages.append({"role": "assistant" if i % 2 else "user", "content": content})
    return messages, seen


def make_served(name, config_class, model_class, text, tower, seed, processor_class=Qwen2VLImageProcessor, template=TEMPLATE,
                **processing):
    text = dict(text, vocab_size=256 + len(NAMED), max_position_embeddings=512, eos_token_id=IDS_OF["<|im_end|>"])
    config = config_class(
        text_config=text, vision_config=tower, image_token_id=IDS_OF["<|image_pad|>"], video_token_id=IDS_OF["<|video_pad|>"],
        vision_start_token_id=IDS_OF["<|vision_start|>"], vision_end_token_id=IDS_OF["<|vision_end|>"])
    config._attn_implementation = "eager"
    model = fill(model_class(config), seed)
    folder = write_folder(OUT.parent / name, prefer_letters(model, IDS_OF["<|im_end|>"]))
    tokenizer = write_tokenizer(folder, template)
    processor = processor_class(patch_size=PATCH, merge_size=MERGE, temporal_patch_size=FRAMES,
                                size={"shortest_edge": 256, "longest_edge": 1600}, **processing)
    processor.save_pretrained(folder)
    pictures = make_pictures(folder, PICTURES)
    write_answers(folder, answer_chats(CHATS, lambda turns: answer(model, tokenizer, processor, *messages_of(turns, pictures))))


def qwen_vl_served():
    make_served("qwen_vl_served", Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, TEXT, NEWER, 3)


def make_served_3(name, *parts, **options):
    """Pictures are resized by Pillow, and the folder says so: save_pretrained leaves the ending out."""
    half, folder = [0.5, 0.5, 0.5], OUT.parent / name
    make_served(name, *parts, processor_class=Qwen2VLImageProcessorPil, image_mean=half, image_std=half, **options)
    file = folder / "preprocessor_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"image_processor_type": "Qwen2VLImageProcessorPil"}, indent=1) + "\n")
    return folder


def qwen3_vl_served():
    write_3_as_hub(make_served_3("qwen3_vl_served", Qwen3VLConfig, Qwen3VLForConditionalGeneration, TEXT_3, TOWER_3, 3))


def qwen3_5_served():
    write_3_5_as_hub(make_served_3("qwen3_5_served", Qwen3_5Config, Qwen3_5ForConditionalGeneration, TEXT_35, TOWER_35, 18, template=TEMPLATE_35))


ALL = {"qwen2_vl": qwen2_vl, "qwen2_5_vl": qwen2_5_vl, "qwen3_vl": qwen3_vl, "qwen3_vl_moe": qwen3_vl_moe, "qwen3_5": qwen3_5,
       "qwen3_5_moe": qwen3_5_moe, "qwen_vl_served": qwen_vl_served, "qwen3_vl_served": qwen3_vl_served, "qwen3_5_served": qwen3_5_served}
if __name__ == "__main__":
    for name in sys.argv[1:] or ALL:
        ALL[name]()
