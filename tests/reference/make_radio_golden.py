"""Writes tests/golden/vision/radio_{d_half,hub_a,hub_b}: towers of random weights whose position tables are resized
with half pixels (align_corners false), under Megatron-Core's names and as the Hub has NVIDIA's RADIO.

    pip install torch safetensors numpy
    python tests/reference/make_radio_golden.py

The tower here is written from the descriptions in docs/spec/vision-model.md 2 and import.md 4.3, with PyTorch's own
F.interpolate. Before anything is written it must give Megatron-Core's rows of radio_a and radio_b, whose tables are
resized with their corners aligned.
"""
import json
import shutil
import sys
import zlib
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import load_file, save_file

OUT = Path(__file__).resolve().parents[1] / "golden/vision"
HEADS = 4
NORM_1, NORM_2 = "self_attention.linear_qkv.layer_norm_", "mlp.linear_fc1.layer_norm_"
MEAN, DEVIATION = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]


class Radio:
    """A tower with Megatron's names: QKV rows are grouped by head."""

    def __init__(self, config, tensors):
        self.config, self.t = config, {k: torch.from_numpy(np.array(v)) for k, v in tensors.items()}

    def norm(self, x, at):
        return F.layer_norm(x, x.shape[-1:], self.t[at + "weight"], self.t[at + "bias"], self.config["layernorm_epsilon"])

    def linear(self, x, at):
        return F.linear(x, self.t[at + ".weight"], self.t.get(at + ".bias"))

    def positions(self, grid):
        c = self.config
        rows, columns = c["max_img_h"] // c["patch_dim"], c["max_img_w"] // c["patch_dim"]
        table = self.t["position_embeddings"]
        if (rows, columns) == grid:
            return table
        corners = c.get("interpolate_align_corners", True)
        table = table.reshape(1, rows, columns, -1).permute(0, 3, 1, 2)
        if c.get("has_cpe", True):
            side = max(grid)
            table = F.interpolate(table, size=(side, side), mode="bilinear", align_corners=corners)
        table = table[..., :grid[0], :grid[1]]
        if tuple(table.shape[-2:]) != grid:
            table = F.interpolate(table, size=grid, mode="bilinear", align_corners=corners)
        return table.flatten(2).permute(0, 2, 1)

    def patches(self, images):
        side = self.config["patch_dim"]
        return F.unfold(images, side, stride=side).transpose(1, 2)

    def attention(self, x, at):
        n, length, width = x.shape
        qkv = self.linear(x, at + "linear_qkv").view(n, length, HEADS, 3, -1).permute(3, 0, 2, 1, 4)
        mixed = torch.softmax(qkv[0] @ qkv[1].transpose(-1, -2) / qkv.shape[-1] ** 0.5, -1) @ qkv[2]
        return self.linear(mixed.transpose(1, 2).reshape(n, length, width), at + "linear_proj")

    def mlp(self, x, at):
        wide = self.linear(x, at + "linear_fc1")
        kind = self.config["activation"]
        if kind == "swiglu":
            gate, up = wide.chunk(2, -1)
            wide = F.silu(gate) * up
        else:
            wide = F.gelu(wide, approximate="none" if kind == "gelu_erf" else "tanh")
        return self.linear(wide, at + "linear_fc2")

    def rows(self, images):
        side = self.config["patch_dim"]
        grid = (images.shape[-2] // side, images.shape[-1] // side)
        x = self.linear(self.patches(images), "embedder") + self.positions(grid)
        x = torch.cat([self.t["class_token"].expand(len(x), -1, -1), x], 1)
        for i in range(self.config["num_layers"]):
            at = f"decoder.layers.{i}."
            x = x + self.attention(self.norm(x, at + NORM_1), at + "self_attention.")
            x = x + self.mlp(self.norm(x, at + NORM_2), at + "mlp.")
        return self.norm(x, "ln_post.") if self.config.get("ln_post") else x


def check(name):
    """The class above is Megatron-Core's tower."""
    config = json.loads((OUT / name / "config.json").read_text())
    cases = load_file(OUT / name / "cases.safetensors")
    tower, worst = Radio(config, load_file(OUT / name / "model.safetensors")), 0.0
    for case in config["cases"]:
        got = tower.rows(torch.from_numpy(cases[case["name"] + ".images"]))
        worst = max(worst, float((got - torch.from_numpy(cases[case["name"] + ".output"])).abs().max()))
    print(f"{name}: {worst:.2e} from Megatron-Core")
    if worst > 1e-5:
        sys.exit(f"{name}: the tower of this program is another one")


def random(seed, name, shape):
    return np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())])).standard_normal(shape).astype(np.float32)


def make_tensors(config, seed, width=32, ffn=64):
    """Every bias is non-zero, no norm weight is one."""
    shapes = {"embedder.weight": (width, 3 * config["patch_dim"] ** 2), "class_token": (config["class_token_len"], width),
              "position_embeddings": (1, config["max_img_h"] * config["max_img_w"] // config["patch_dim"] ** 2, width)}
    norms = ["ln_post."] if config.get("ln_post") else []
    for i in range(config["num_layers"]):
        at = f"decoder.layers.{i}."
        norms += [at + NORM_1, at + NORM_2]
        for part, rows, columns in (("self_attention.linear_qkv", 3 * width, width), ("self_attention.linear_proj", width, width),
                                    ("mlp.linear_fc1", ffn, width), ("mlp.linear_fc2", width, ffn)):
            shapes[at + part + ".weight"], shapes[at + part + ".bias"] = (rows, columns), (rows,)
    for at in norms:
        shapes[at + "weight"] = shapes[at + "bias"] = (width,)
    tensors = {}
    for name, shape in shapes.items():
        z = random(seed, name, shape)
        if name.rpartition(".")[0] + "." in norms or "layer_norm_" in name:
            z = 1 + np.float32(0.25) * z if name.endswith("weight") else np.float32(0.2) * z
        elif name.endswith("bias"):
            z = np.float32(0.2) * z
        elif name.endswith("weight"):
            z = z / np.float32(np.sqrt(shape[1]))
        tensors[name] = z
    return tensors


def make_cases(tower, sizes, condition=False):
    cases = {}
    for tiles, height, width in sizes:
        name = f"h{height}_w{width}_t{tiles}"
        images = random(7, name, (tiles, 3, height, width))
        shown = torch.from_numpy(images)
        if condition:  # pixels from 0 to 1, as RADIO's processor leaves them
            images = 1 / (1 + np.exp(-images))
            shown = (torch.from_numpy(images) - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(DEVIATION).view(3, 1, 1)
        cases[name + ".images"], cases[name + ".output"] = images, tower.rows(shown).numpy()
    return cases


def write(name, config, tensors, cases):
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, folder / "model.safetensors")
    save_file({k: np.ascontiguousarray(v) for k, v in cases.items()}, folder / "cases.safetensors")


def make_half_pixels():
    config = {"architecture": "radio_vit", "num_layers": 2, "hidden_size": 32, "num_attention_heads": HEADS, "kv_channels": 8,
              "ffn_hidden_size": 64, "activation": "gelu_erf", "normalization": "LayerNorm", "layernorm_epsilon": 1e-6,
              "add_bias_linear": True, "add_qkv_bias": True, "class_token_len": 3, "patch_dim": 8, "max_img_h": 48,
              "max_img_w": 80, "interpolate_align_corners": False}
    tensors = make_tensors(config, 11)
    sizes = [(1, 48, 80), (1, 32, 32), (2, 16, 72), (1, 64, 24), (1, 96, 88), (1, 8, 8)]
    write("radio_d_half", config, tensors, make_cases(Radio(config, tensors), sizes))


def to_hub(tensors, patch):
    """The Hub's names; Q, K and V follow one another."""
    renamed = {}
    names = (("self_attention.linear_qkv.layer_norm_", "norm1."), ("self_attention.linear_qkv.", "attn.qkv."),
             ("self_attention.linear_proj.", "attn.proj."), ("mlp.linear_fc1.layer_norm_", "norm2."),
             ("mlp.linear_fc1.", "mlp.fc1."), ("mlp.linear_fc2.", "mlp.fc2."), ("decoder.layers.", "blocks."),
             ("ln_post.", "norm."), ("embedder.", "patch_generator.embedder."),
             ("class_token", "patch_generator.cls_token.token"), ("position_embeddings", "patch_generator.pos_embed"))
    for name, value in tensors.items():
        if "linear_qkv." in name and "layer_norm" not in name:
            value = value.reshape(HEADS, 3, -1, *value.shape[1:]).swapaxes(0, 1).reshape(value.shape)
        for ours, theirs in names:
            name = name.replace(ours, theirs)
        renamed["radio_model.model." + name] = value
    return renamed


def make_hub(name, seed, args, tower, sizes):
    """What hf_hub.py of NVlabs/RADIO pushes: the backbone, the conditioner, and tensors of heads that are not read."""
    config = {"num_layers": 2, "activation": "gelu_erf", "layernorm_epsilon": 1e-6, "interpolate_align_corners": False, **tower}
    tensors = make_tensors(config, seed)
    hub = to_hub(tensors, tower["patch_dim"])
    hub["radio_model.input_conditioner.norm_mean"] = np.array(MEAN, np.float32).reshape(3, 1, 1)
    hub["radio_model.input_conditioner.norm_std"] = np.array(DEVIATION, np.float32).reshape(3, 1, 1)
    hub["radio_model.summary_idxs"] = np.array([0, 2], np.int64)
    hub["radio_model.adaptors.clip.head_mlp.fc1.weight"] = random(seed, "head", (8, 32))
    patch = tower["patch_dim"]
    published = {"adaptor_configs": {}, "adaptor_names": None, "architectures": ["RADIOModel"],
                 "args": {"model": f"vit_small_patch{patch}_224", "in_chans": None, "input_size": None, "num_classes": None,
                          "model_kwargs": {"embed_dim": 32, "depth": 2, "num_heads": HEADS, "mlp_ratio": 2}, **args},
                 "auto_map": {"AutoConfig": "hf_model.RADIOConfig", "AutoModel": "hf_model.RADIOModel"},
                 "feature_normalizer_config": None, "max_resolution": 2048, "patch_size": patch,
                 "preferred_resolution": [48, 48], "torch_dtype": "float32", "version": "radio_v2.5-b",
                 "vitdet_window_size": None}
    write(name, published, hub, make_cases(Radio(config, tensors), sizes, condition=True))


def main():
    torch.set_num_threads(1)
    check("radio_a")
    check("radio_b")
    make_half_pixels()
    teachers = [{"name": "clip", "use_summary": True}, {"name": "dino_v2"}, {"name": "sam", "use_summary": False},
                {"name": "clip", "use_summary": False}]
    make_hub("radio_hub_a", 12,
             {"cls_token_per_teacher": True, "teachers": teachers, "register_multiple": 8, "cpe_max_size": 100,
              "spectral_reparam": False, "model_norm": False},
             {"patch_dim": 16, "class_token_len": 8, "max_img_h": 96, "max_img_w": 96},
             [(1, 96, 96), (2, 48, 48), (1, 32, 80), (1, 80, 16), (1, 112, 64)])
    make_hub("radio_hub_b", 13,
             {"cls_token_per_teacher": False, "teachers": teachers, "register_multiple": None, "cpe_num_registers": 2,
              "cpe_max_size": 224, "spectral_reparam": False, "model_norm": True},
             {"patch_dim": 14, "class_token_len": 3, "max_img_h": 224, "max_img_w": 224, "has_cpe": False, "ln_post": True},
             [(1, 56, 42), (1, 28, 238)])


if __name__ == "__main__":
    main()
