"""Writes tests/golden/vision/hf_qwen2_vl, hf_qwen2_5_vl and hf_qwen3_vl: tiny random vision towers of Qwen2-VL, Qwen2.5-VL
and Qwen3-VL, of transformers' own classes.

    pip install torch torchvision transformers==5.23.0 safetensors numpy pillow
    python tests/reference/make_qwen_tower_golden.py [NAME ...]

Pictures go through transformers' image processor; a case holds them as its patches show them, [3, H, W]. `.output` are
rows behind the merger's norm in the tower's order, `.projected` those behind the merger, and beside them those of the
deepstack's mergers. Nothing is patched.
"""
import os
import shutil
import sys
import zlib
from pathlib import Path

os.environ["TRANSFORMERS_OFFLINE"] = os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import torch
import transformers
from PIL import Image
from safetensors.numpy import save_file
from transformers import Qwen2VLImageProcessor
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VisionTransformerPretrainedModel
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLVisionConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLVisionModel

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

OUT = Path(__file__).resolve().parents[1] / "golden/vision"
PATCH, MERGE = 4, 2
PROCESSOR = dict(patch_size=PATCH, merge_size=MERGE, size={"shortest_edge": 64, "longest_edge": 1280})
SIZES = {"square": (40, 40), "wide": (70, 23), "tall": (9, 61), "tiny": (3, 2), "large": (190, 130)}  # width, height
CASES = {"one": ["wide"], "small": ["tiny"], "large": ["large"], "several": ["tall", "square", "tiny"]}


def fill(model, seed):
    """Every bias is non-zero, no norm weight is one."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            z = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())])).standard_normal(tuple(p.shape))
            if "norm" in name or "ln_q" in name:
                z = 1 + 0.25 * z if name.endswith("weight") else 0.2 * z
            elif name.endswith("bias"):
                z = 0.2 * z
            else:
                z = z / np.sqrt(np.prod(p.shape[1:]))
            p.copy_(torch.from_numpy(np.asarray(z, np.float32)))
    return model.eval()


def make_picture(name):
    width, height = SIZES[name]
    noise = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))
    return Image.fromarray(noise.integers(0, 256, (height, width, 3), dtype=np.uint8))


def planes(values, grid):
    """Patches, twice in time and in blocks of merged ones, as the picture that they show."""
    _, rows, columns = grid
    values = values.reshape(rows // MERGE, columns // MERGE, MERGE, MERGE, 3, 2, PATCH, PATCH)
    assert (values[..., 0, :, :] == values[..., 1, :, :]).all()
    return values[..., 0, :, :].transpose(4, 0, 2, 5, 1, 3, 6).reshape(3, rows * PATCH, columns * PATCH)


def make(name, model):
    processor, cases = Qwen2VLImageProcessor(**PROCESSOR), {}
    fill(model, zlib.crc32(name.encode()))
    for case, pictures in CASES.items():
        given = processor([make_picture(p) for p in pictures], return_tensors="np")
        grids, values = given["image_grid_thw"], given["pixel_values"].astype(np.float32)
        with torch.no_grad():
            found = model(torch.from_numpy(values), grid_thw=torch.from_numpy(grids))
            norm = model.merger.ln_q if hasattr(model.merger, "ln_q") else model.merger.norm
            cases[f"{case}.output"] = norm(found.last_hidden_state).numpy()
        parts = [found.pooler_output, *getattr(found, "deepstack_features", [])]
        cases[f"{case}.projected"] = torch.cat(parts, 1).numpy()
        ends = np.cumsum([t * h * w for t, h, w in grids])
        for i, part in enumerate(np.split(values, ends[:-1])):
            cases[f"{case}.picture_{i}"] = planes(part, grids[i])
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    save_file({k: np.ascontiguousarray(v) for k, v in cases.items()}, folder / "cases.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)


SHARED = dict(depth=3, num_heads=4, patch_size=PATCH, spatial_merge_size=MERGE, temporal_patch_size=2)
if __name__ == "__main__":
    older = Qwen2VLVisionConfig(embed_dim=32, hidden_size=24, mlp_ratio=2, **SHARED)
    newer = Qwen2_5_VLVisionConfig(hidden_size=32, out_hidden_size=24, intermediate_size=44, window_size=24,
                                   fullatt_block_indexes=[1], **SHARED)
    newest = Qwen3VLVisionConfig(hidden_size=32, out_hidden_size=24, intermediate_size=44, num_position_embeddings=49,
                                 deepstack_visual_indexes=[0, 1], **SHARED)
    for config in (older, newer, newest):
        config._attn_implementation = "eager"
    towers = {"hf_qwen2_vl": lambda: Qwen2VisionTransformerPretrainedModel(older),
              "hf_qwen2_5_vl": lambda: Qwen2_5_VisionTransformerPretrainedModel(newer),
              "hf_qwen3_vl": lambda: Qwen3VLVisionModel(newest)}
    for name in sys.argv[1:] or towers:
        make(name, towers[name]())
