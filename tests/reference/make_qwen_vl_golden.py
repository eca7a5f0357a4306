"""Writes tests/golden/vision/qwen2_vl and qwen2_5_vl: tiny random models of transformers' own classes, with logits of texts
without and with pictures, and a greedy continuation.

    pip install torch transformers==5.23.0 safetensors numpy
    python tests/reference/make_qwen_vl_golden.py [NAME ...]

Models run in f32 with eager attention. qwen2_vl is written as the Hub has it (the text's keys beside vision_config, "mrope",
a tied output), qwen2_5_vl as save_pretrained of transformers 5 nests it. Texts have an id for each row of a picture, as the
processor makes them; pictures are [3, height, width], as the processor has them before it cuts them into patches. Nothing
is patched.
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
from safetensors.numpy import save_file
from transformers import (Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2VLConfig,
                          Qwen2VLForConditionalGeneration)

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

OUT = Path(__file__).resolve().parents[1] / "golden/vision"
VOCAB, START, END, IMAGE, VIDEO, NEW = 64, 60, 61, 62, 63, 12
PATCH, MERGE, FRAMES = 4, 2, 2
ROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
TEXT = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=256, bos_token_id=None, eos_token_id=2, rope_parameters=ROPE)
IDS = dict(image_token_id=IMAGE, video_token_id=VIDEO, vision_start_token_id=START, vision_end_token_id=END)
COMMON = dict(patch_size=PATCH, spatial_merge_size=MERGE, temporal_patch_size=FRAMES, num_heads=2, in_channels=3)
OLD = dict(COMMON, depth=2, embed_dim=16, hidden_size=32, mlp_ratio=2)
NEWER = dict(COMMON, depth=3, hidden_size=16, intermediate_size=24, out_hidden_size=32, window_size=16,
             fullatt_block_indexes=[1])


def fill(model, seed):
    """Every bias is non-zero, no norm weight is one."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            z = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())])).standard_normal(tuple(p.shape))
            if "norm" in name or name.endswith("ln_q.weight"):
                z = 1 + 0.25 * z if name.endswith("weight") else 0.2 * z
            elif name.endswith("bias"):
                z = 0.2 * z
            elif "embed_tokens" in name or "lm_head" in name:
                z = 0.3 * z
            else:
                z = 1.1 * z / np.sqrt(np.prod(p.shape[1:]))
            p.copy_(torch.from_numpy(np.asarray(z, np.float32)))
    return model.eval()


def picture(height, width, seed):
    return np.random.Generator(np.random.PCG64(seed)).standard_normal((3, height, width)).astype(np.float32)


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


def go_on(model, prompt, pixels):
    """Tokens and logits of a greedy continuation; None where another seed is needed: a picture would be drawn, or two
    tokens are nearly alike."""
    ids, tokens, logits = prompt, [], []
    for _ in range(NEW):
        row = run(model, ids, pixels)[0, -1]
        token = int(row.argmax())
        if token in (IMAGE, VIDEO) or np.diff(np.sort(row)[-2:])[0] < 5e-3:
            return None
        tokens.append(token)
        logits.append(row)
        ids = ids + [token]
    return np.array(tokens, np.int32), np.stack(logits)


def make(name, model):
    text, pixels = CASES["two"]
    prompt, seed, made = expand(text, pixels), 0, None
    while made is None:
        seed += 1
        made = go_on(fill(model, seed), prompt, pixels)
    generation = {"greedy.prompt": np.array(prompt, np.int32), "greedy.tokens": made[0], "greedy.logits": made[1]}
    generation |= {f"greedy.picture_{i}": p for i, p in enumerate(pixels)}
    cases = {}
    for case, (text, pixels) in CASES.items():
        ids = expand(text, pixels)
        cases |= {f"{case}.input_ids": np.array([ids], np.int32), f"{case}.logits": run(model, ids, pixels)}
        cases |= {f"{case}.picture_{i}": p for i, p in enumerate(pixels)}
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_file({k: np.ascontiguousarray(v) for k, v in cases.items()}, folder / "cases.safetensors")
    save_file({k: np.ascontiguousarray(v) for k, v in generation.items()}, folder / "generation.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)
    return folder


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


def qwen2_vl():
    config = Qwen2VLConfig(text_config=TEXT, vision_config=OLD, tie_word_embeddings=True, **IDS)
    config._attn_implementation = "eager"
    write_as_hub(make("qwen2_vl", Qwen2VLForConditionalGeneration(config)))


def qwen2_5_vl():
    config = Qwen2_5_VLConfig(text_config=TEXT, vision_config=NEWER, **IDS)
    config._attn_implementation = "eager"
    make("qwen2_5_vl", Qwen2_5_VLForConditionalGeneration(config))


ALL = {"qwen2_vl": qwen2_vl, "qwen2_5_vl": qwen2_5_vl}
for name in sys.argv[1:] or ALL:
    ALL[name]()
