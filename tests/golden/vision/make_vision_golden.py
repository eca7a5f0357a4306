#!/usr/bin/env python3
"""Golden fixtures for NVIDIA Megatron-Core's CLIPViTModel, RADIOViTModel, MultimodalProjector and LLaVAModel.

    python make_vision_golden.py --out DIR [--only clip_a,...]

Needs: torch (CPU), megatron-core 0.14.0, einops, numpy, safetensors.  Transformer Engine and Apex must be absent:
the *local* layer specs are used.

What is reference and what is ours
  * The forward pass is Megatron-Core's own model, in eval mode, float32, on the CPU.
  * Patched only to run without a GPU or Transformer Engine (no effect on the maths in eval mode):
    torch.cuda.current_device returns "cpu", Tensor.cuda is the identity, the default causal mask is made on the CPU,
    the CUDA RNG tracker is a no-op, torch.compile is disabled, and CLIPViTModel's default norm for ln_pre/ln_post
    (torch.nn.LayerNorm without Transformer Engine, which rejects the arguments it is given) is WrappedTorchNorm.
  * The local ViT layer spec says attn_mask_type causal; the Transformer Engine spec says no_mask.  All towers here
    use the local spec with no_mask, as NVIDIA's examples do; `*.output_causal` is the unmodified local spec.
  * config.json "patched": true -> the projector has a norm before fc1: NormColumnParallelLinear below stands in
    for Transformer Engine's fused layer (names layer_norm_weight / layer_norm_bias).
  * Weights are seeded normal noise (numpy PCG64, one stream per parameter name), never a trained model;
    no bias is zero, no norm weight is one.  Layer keys are Megatron's Transformer Engine names unless config.json
    says "key_style": "local" (names of the local spec).
Determinism: inputs and weights are bit-identical on every machine; outputs may differ in the last bits.
"""
import argparse, contextlib, json, os, re, socket, zlib

os.environ["TORCHDYNAMO_DISABLE"] = "1"          # jit_fuser is torch.compile: run it eagerly
os.environ.setdefault("OMP_NUM_THREADS", "1")
import warnings
warnings.filterwarnings("ignore")
import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

torch.set_num_threads(1)
torch.cuda.current_device = lambda: "cpu"
torch.Tensor.cuda = lambda self, *a, **k: self

from megatron.core import parallel_state, tensor_parallel
import megatron.core as mcore
from megatron.core.activations import fast_gelu, quick_gelu, squared_relu
from megatron.core.fusions import fused_softmax
from megatron.core.models.multimodal.llava_model import LLaVAModel
from megatron.core.models.multimodal.llava_spec import decoder_model_with_local_default_spec
from megatron.core.models.vision.clip_vit_model import CLIPViTModel
from megatron.core.models.vision.multimodal_projector import MultimodalProjector
from megatron.core.models.vision.radio import RADIOViTModel
from megatron.core.models.vision.vit_layer_specs import get_vit_layer_with_local_spec
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.mlp import MLPSubmodules
from megatron.core.transformer.torch_norm import WrappedTorchNorm
from megatron.core.transformer.transformer_config import TransformerConfig


class _NoRng:
    """Stands in for the CUDA RNG tracker; only dropout uses it and dropout is off in eval mode."""
    @contextlib.contextmanager
    def fork(self, *a, **k):
        yield


tensor_parallel.get_cuda_rng_tracker = lambda *a, **k: _NoRng()
tensor_parallel.random.get_cuda_rng_tracker = lambda *a, **k: _NoRng()
tensor_parallel.layers.get_cuda_rng_tracker = lambda *a, **k: _NoRng()
fused_softmax.get_default_causal_mask = lambda sq: torch.triu(torch.ones(sq, sq), diagonal=1).bool()
CLIPViTModel.__init__.__defaults__ = tuple(WrappedTorchNorm if d is torch.nn.LayerNorm else d
                                           for d in CLIPViTModel.__init__.__defaults__)

MIN_MARGIN, MIN_DISTINCT = 5e-3, 6     # greedy goldens: smallest top1-top2 gap, number of distinct ids
ACTIVATIONS = {"gelu_tanh": (F.gelu, False, True), "gelu_erf": (F.gelu, False, False), "swiglu": (F.silu, True, True),
               "quick_gelu": (quick_gelu, False, False), "fast_gelu": (fast_gelu, False, False),
               "squared_relu": (squared_relu, False, False)}

# ------------------------------------------------------------------------------------------ cases
VIT = dict(num_layers=3, hidden_size=32, num_attention_heads=4, kv_channels=8, ffn_hidden_size=64, activation="quick_gelu",
           normalization="LayerNorm", layernorm_epsilon=1e-5, add_bias_linear=True, add_qkv_bias=True)
CLIP = dict(VIT, architecture="clip_vit", model_subtype="clip", add_class_token=True, class_token_len=1, patch_dim=14,
            img_h=28, img_w=28)
RADIO = dict(VIT, architecture="radio_vit", activation="fast_gelu", layernorm_epsilon=1e-6, add_class_token=True,
             class_token_len=8, patch_dim=8, max_img_h=64, max_img_w=64, embedder_bias=False, has_cpe=True,
             use_mask_token=False, ln_pre=False, ln_post=False)
PROJ = dict(architecture="multimodal_projector", projector_type="mlp", input_size=24, hidden_size=32, ffn_hidden_size=40,
            activation="gelu_erf", add_bias_linear=False, norm=False, normalization="LayerNorm", layernorm_epsilon=1e-5)
GPT = dict(num_layers=3, hidden_size=32, num_attention_heads=4, num_query_groups=4, kv_channels=8, ffn_hidden_size=64,
           vocab_size=250, padded_vocab_size=256, max_position_embeddings=64, position_embedding_type="learned_absolute",
           rotary_percent=1.0, rotary_base=10000, activation="gelu_tanh", normalization="LayerNorm", layernorm_epsilon=1e-5,
           add_bias_linear=True, add_qkv_bias=True, tie_word_embeddings=True)
LLAVA = dict(architecture="llava", image_token_index=-200, drop_vision_class_token=True, pixel_shuffle=False, tile_tags=None)
LLAMA = dict(GPT, position_embedding_type="rope", activation="swiglu", normalization="RMSNorm", add_bias_linear=False,
             add_qkv_bias=False, tie_word_embeddings=False, num_query_groups=2, layernorm_epsilon=1e-6)
I = "I"     # an image token in the sequences below; an int is that many random text ids
PUBLIC = {   # vision entry: (seed, config, [(tiles, h, w)...]); projector: (seed, config, [rows...])
    "clip_a": (2101, CLIP, [(1, 28, 28), (3, 28, 28)]),
    "clip_b": (2102, dict(CLIP, patch_dim=7, img_h=35, img_w=21, key_style="local", num_layers=2, layernorm_epsilon=1e-3), [(2, 35, 21)]),
    "clip_c_siglip": (2103, dict(CLIP, model_subtype="siglip", add_class_token=False, class_token_len=0, patch_dim=8, img_h=24,
        img_w=40, activation="fast_gelu", layernorm_epsilon=1e-6), [(2, 24, 40)]),
    "clip_d_internvit": (2104, dict(CLIP, model_subtype="internvit", class_token_len=3, patch_dim=8, img_h=16, img_w=24,
        activation="gelu_erf", normalization="RMSNorm", layernorm_epsilon=1e-4, add_qkv_bias=False), [(2, 16, 24)]),
    "radio_a": (2201, RADIO, [(1, 64, 64), (1, 32, 32), (2, 32, 56), (1, 48, 16), (1, 72, 80)]),
    "radio_b": (2202, dict(RADIO, class_token_len=5, max_img_h=48, max_img_w=80, embedder_bias=True, ln_post=True,
        use_mask_token=True, activation="swiglu", num_layers=2, layernorm_epsilon=1e-3), [(1, 48, 80), (1, 40, 40), (1, 16, 72), (1, 64, 24)]),
    "radio_c_nocpe": (2203, dict(RADIO, class_token_len=2, has_cpe=False, ln_pre=True, key_style="local", num_layers=2,
        layernorm_epsilon=1e-3),
        [(1, 24, 40), (1, 80, 32), (1, 72, 80)]),
    "projector_mlp": (2301, PROJ, [7]),
    "projector_mlp_bias": (2302, dict(PROJ, add_bias_linear=True, activation="gelu_tanh"), [7]),
    "projector_mlp_norm": (2303, dict(PROJ, activation="swiglu", norm=True, normalization="RMSNorm", layernorm_epsilon=1e-3, patched=True), [7]),
    "projector_mlp_sqrelu": (2304, dict(PROJ, activation="squared_relu"), [7]),
    "projector_affine": (2305, dict(PROJ, projector_type="affine", add_bias_linear=True), [7]),
    # LLaVA: (seed, config, [(name, samples, tiles per image)...], [(name, prompt, tiles)...], tokens to generate)
    "llava_a": (2401, dict(LLAVA, language=GPT, vision=CLIP, projector=dict(PROJ, input_size=32)), [
        ("text_only", [[9]], []), ("one_start", [[I, 6]], [1]), ("one_middle", [[4, I, 5]], [1]), ("one_end", [[5, I]], [1]),
        ("two", [[3, I, 4, I, 2]], [1, 1]), ("two_adjacent", [[2, I, I, 3]], [1, 1]), ("tiles", [[3, I, 4, I, 2]], [3, 2]),
        ("batch2", [[3, I, 2, I, 2], [1, I, 7]], [1, 2, 1]), ("batch2_text", [[8], [2, I, 5]], [2]),
        ("truncated", [[4, I, 5, I, 20]], [8, 3])],
        [("one", [3, I, 4], [1]), ("two", [2, I, 3, I, 2], [1, 2])], 20),
    "llava_b": (2402, dict(LLAVA, image_token_index=249, drop_vision_class_token=False, pixel_shuffle=True, language=LLAMA,
        vision=dict(CLIP, model_subtype="siglip", add_class_token=False, class_token_len=0, patch_dim=8, img_h=32, img_w=32,
                    activation="fast_gelu", hidden_size=24, num_attention_heads=3, num_layers=2, layernorm_epsilon=1e-4),
        projector=dict(PROJ, input_size=96, norm=True, normalization="RMSNorm", layernorm_epsilon=1e-3), patched=True), [
        ("one_middle", [[4, I, 5]], [1]), ("two", [[1, I, 4, I, 6]], [1, 2]), ("batch2", [[5, I, 3], [I, 6, I, 2]], [1, 1, 1])],
        [("two", [3, I, 5, I, 2], [1, 1])], 20),
    "llava_c_radio_tags": (2403, dict(LLAVA, drop_vision_class_token=False, language=LLAMA,
        vision=dict(RADIO, model_subtype="radio", hidden_size=8, num_attention_heads=2, ffn_hidden_size=32, num_layers=2,
                    patch_dim=32, img_h=32, img_w=64, max_img_h=2048, max_img_w=2048),
        projector=dict(PROJ, input_size=8, projector_type="affine", add_bias_linear=True),
        tile_tags=[[11, 12, 13, 14, 15], [11, 12, 13, 14, 16], [11, 12, 13, 14, 17], [11, 18, 19, 20, 15]],
        tokenizer_type="chatml", max_num_tiles=3), [
        ("one_tile", [[4, I, 5]], [1]), ("three_tiles", [[2, I, 3]], [3])], [], 0),
}


# ------------------------------------------------------------------------------------------ model
class NormColumnParallelLinear(ColumnParallelLinear):
    """PATCH: norm then linear, with the parameter names of Transformer Engine's fused layer."""
    def __init__(self, input_size, output_size, *, config, **k):
        super().__init__(input_size, output_size, config=config, **k)
        self.norm_config = config
        self.layer_norm_weight = torch.nn.Parameter(torch.ones(input_size))
        if config.normalization == "LayerNorm":
            self.layer_norm_bias = torch.nn.Parameter(torch.zeros(input_size))

    def forward(self, x, *a, **k):
        e, n = self.norm_config.layernorm_epsilon, (x.shape[-1],)
        x = F.rms_norm(x, n, self.layer_norm_weight, e) if self.norm_config.normalization == "RMSNorm" else \
            F.layer_norm(x, n, self.layer_norm_weight, self.layer_norm_bias, e)
        return super().forward(x, *a, **k)


def tconfig(c, **over):
    act = ACTIVATIONS[c["activation"]]
    heads = c.get("num_attention_heads", 1)
    cfg = TransformerConfig(
        num_layers=c.get("num_layers", 1), hidden_size=c["hidden_size"], ffn_hidden_size=c["ffn_hidden_size"],
        num_attention_heads=heads, kv_channels=c.get("kv_channels"), num_query_groups=c.get("num_query_groups", heads),
        normalization=c["normalization"], layernorm_epsilon=c["layernorm_epsilon"], activation_func=act[0],
        gated_linear_unit=act[1], bias_activation_fusion=act[2], add_bias_linear=c["add_bias_linear"],
        add_qkv_bias=c.get("add_qkv_bias", False) and not c["add_bias_linear"], hidden_dropout=0.0, attention_dropout=0.0,
        use_cpu_initialization=True, params_dtype=torch.float32, masked_softmax_fusion=False)
    for k, v in over.items():
        setattr(cfg, k, v)
    return cfg


def vit_spec(causal=False):
    spec = get_vit_layer_with_local_spec()
    assert spec.submodules.self_attention.params["attn_mask_type"] == AttnMaskType.causal
    if not causal:
        spec.submodules.self_attention.params = {"attn_mask_type": AttnMaskType.no_mask}
    return spec


def build_vit(c, h, w, causal=False):
    if c["architecture"] == "clip_vit":
        return CLIPViTModel(tconfig(c), vit_spec(causal), add_class_token=c["add_class_token"], class_token_len=c["class_token_len"],
                            patch_dim=c["patch_dim"], img_h=h, img_w=w, model_subtype=c["model_subtype"]).eval()
    n = lambda k: WrappedTorchNorm if c[k] else None
    return RADIOViTModel(tconfig(c), vit_spec(causal), ln_pre_impl=n("ln_pre"), ln_post_impl=n("ln_post"),
                         use_mask_token=c["use_mask_token"], add_class_token=c["add_class_token"],
                         class_token_len=c["class_token_len"], patch_dim=c["patch_dim"], img_h=h, img_w=w,
                         max_img_h=c["max_img_h"], max_img_w=c["max_img_w"], has_cpe=c["has_cpe"],
                         embedder_bias=c["embedder_bias"]).eval()


def proj_submodules(c):
    return MLPSubmodules(linear_fc1=NormColumnParallelLinear if c["norm"] else ColumnParallelLinear, linear_fc2=RowParallelLinear)


def build_llava(c):
    l, v, p = c["language"], c["vision"], c["projector"]
    assert p["hidden_size"] == l["hidden_size"]
    return LLaVAModel(
        language_transformer_config=tconfig(l), language_transformer_layer_spec=decoder_model_with_local_default_spec(),
        language_vocab_size=l["padded_vocab_size"], language_max_sequence_length=l["max_position_embeddings"],
        vision_transformer_config=tconfig(v, vision_model_type=v["model_subtype"]), vision_transformer_layer_spec=vit_spec(),
        drop_vision_class_token=c["drop_vision_class_token"], vision_projection_config=tconfig(p),
        vision_projection_layer_spec=proj_submodules(p), vision_projection_type=p["projector_type"], parallel_output=False,
        share_embeddings_and_output_weights=l["tie_word_embeddings"], language_position_embedding_type=l["position_embedding_type"],
        language_rotary_percent=l["rotary_percent"], img_h=v["img_h"], img_w=v["img_w"], patch_dim=v["patch_dim"],
        language_rotary_base=l["rotary_base"], image_token_index=c["image_token_index"], pixel_shuffle=c["pixel_shuffle"],
        tile_tags=c["tile_tags"], max_num_tiles=c.get("max_num_tiles", 0), tokenizer_type=c.get("tokenizer_type", "")).eval()


def te_name(k):
    """Local-spec parameter name -> Transformer Engine name."""
    k = re.sub(r"\.input_layernorm\.(weight|bias)$", r".self_attention.linear_qkv.layer_norm_\1", k)
    return re.sub(r"\.pre_mlp_layernorm\.(weight|bias)$", r".mlp.linear_fc1.layer_norm_\1", k)


def init_value(seed, name, shape):
    z = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())])).standard_normal(shape).astype(np.float32)
    if "layernorm" in name or "layer_norm" in name or "ln_p" in name:
        return 1.0 + 0.25 * z if name.endswith("weight") else 0.2 * z
    if name.endswith("bias"):
        return (0.1 if "linear_proj" in name or "linear_fc2" in name else 0.2) * z
    if "word_embeddings" in name:
        return 0.4 * z
    if "position_embeddings" in name:
        return 0.7 * z
    if name.endswith("_token"):
        return z
    gain = {"linear_qkv": 1.4, "linear_proj": 0.7, "linear_fc1": 1.3, "linear_fc2": 0.7, "output_layer": 1.5, "conv1": 1.0,
            "embedder": 1.0, "encoder": 1.0}[name.split(".")[-2]]
    if "vision_projection" in name and "linear_fc2" in name:
        gain = 1.2
    return (gain / np.sqrt(np.prod(shape[1:]))) * z


def load(model, seed):
    w = {te_name(n): np.ascontiguousarray(init_value(seed, te_name(n), tuple(p.shape)), np.float32) for n, p in model.named_parameters()}
    with torch.no_grad():
        for n, p in model.named_parameters():
            p.copy_(torch.from_numpy(w[te_name(n)]))
    return w


def save_weights(model, w, c, d):
    assert {te_name(k) for k, v in model.state_dict().items() if torch.is_tensor(v)} == set(w)
    if c.get("key_style") == "local":
        w = {n: w[te_name(n)] for n, _ in model.named_parameters()}
    save_file(w, os.path.join(d, "model.safetensors"), metadata={"format": "pt"})


# ---------------------------------------------------------------------------------------- forward
def keep(acts, name, tr):
    return lambda mod, a, out: acts.__setitem__(name, np.ascontiguousarray(tr(out).detach().numpy()))


def vit_hooks(m, acts):
    hooks = [l.register_forward_hook(keep(acts, f"layer.{i}", lambda o: o[0].transpose(0, 1)))
             for i, l in enumerate(m.decoder.layers)]
    hooks.append(m.decoder.register_forward_pre_hook(
        lambda mod, a: acts.__setitem__("embedding", np.ascontiguousarray(a[0].transpose(0, 1).numpy()))))
    if isinstance(m, CLIPViTModel):
        hooks.append(m.conv1.register_forward_hook(keep(acts, "patches", lambda o: o.flatten(2).transpose(1, 2))))
    else:
        hooks.append(m.embedder.register_forward_hook(keep(acts, "patches", lambda o: o[0])))
    return hooks


@torch.no_grad()
def run_vit(m, x):
    acts = {}
    hooks = vit_hooks(m, acts)
    acts["output"] = m(torch.from_numpy(x).to(next(m.parameters()).dtype)).numpy()
    if isinstance(m, RADIOViTModel):
        acts["positions"] = m.get_pos_enc(1, None, x.shape[2:]).contiguous().numpy()
    for h in hooks:
        h.remove()
    return acts


def worst(a, b):
    return max(np.abs(a[k] - b[k]).max() for k in a)


def make_vit(name, seed, c, shapes, d):
    rng, data, index, first = np.random.Generator(np.random.PCG64([seed, 7])), {}, [], None
    for t, h, w_ in shapes:
        m = build_vit(c, h, w_)
        w = load(m, seed)
        first = first or save_weights(m, w, c, d) or True
        tag, x = f"h{h}_w{w_}_t{t}", rng.standard_normal((t, 3, h, w_)).astype(np.float32)
        acts = run_vit(m, x)
        err = worst(acts, run_vit(m.double(), x))
        if name in ("clip_a", "clip_h1"):
            mc = build_vit(c, h, w_, causal=True); load(mc, seed)
            acts["output_causal"] = run_vit(mc, x)["output"]
        data.update({f"{tag}.{k}": v for k, v in acts.items()}); data[tag + ".images"] = x
        index.append(dict(name=tag, tiles=t, img_h=h, img_w=w_, seq_length=m.seq_length))
        print(f"{name:20s} {tag:14s} output {acts['output'].shape} std {acts['output'].std():.2f} f32-f64 {err:.1e}", flush=True)
    c["cases"] = index
    return data


def make_proj(name, seed, c, rows, d):
    m = MultimodalProjector(tconfig(c), proj_submodules(c), c["projector_type"], c["input_size"]).eval()
    w = load(m, seed)
    save_weights(m, w, c, d)
    x = np.random.Generator(np.random.PCG64([seed, 7])).standard_normal((rows[0], c["input_size"])).astype(np.float32)
    run = lambda: m(torch.from_numpy(x).to(next(m.parameters()).dtype)[:, None])[:, 0].detach().numpy()
    y = run(); m.double()
    print(f"{name:20s} output {y.shape} std {y.std():.2f} f32-f64 {np.abs(run() - y).max():.1e}", flush=True)
    c["cases"] = [dict(name="x", rows=rows[0])]
    return {"x.input": x, "x.output": y}


@torch.no_grad()
def run_llava(m, c, ids, images, tiles, collect=False):
    acts, hooks = {}, []
    if collect:
        lm = m.language_model
        hooks.append(m.vision_model.register_forward_hook(keep(acts, "vision.output", lambda o: o)))
        hooks.append(m.vision_projection.register_forward_hook(keep(acts, "projected", lambda o: o.transpose(0, 1))))
        hooks.append(lm.decoder.register_forward_pre_hook(lambda mod, a, k: acts.__setitem__(
            "merged", np.ascontiguousarray(k["hidden_states"].transpose(0, 1).numpy())), with_kwargs=True))
        hooks += [l.register_forward_hook(keep(acts, f"layer.{i}", lambda o: o[0].transpose(0, 1))) for i, l in enumerate(lm.decoder.layers)]
    t = torch.from_numpy(ids.astype(np.int64))
    pos = torch.arange(t.shape[1])[None].expand_as(t)
    logits, _ = m(torch.from_numpy(images).to(next(m.parameters()).dtype), t, pos, None,
                  num_image_tiles=torch.tensor(tiles, dtype=torch.int))
    for h in hooks:
        h.remove()
    acts["logits"] = logits.contiguous().numpy()
    return acts


def make_llava(name, seed, c, cases, gens, count, d):
    l, v = c["language"], c["vision"]
    m = build_llava(c)
    w = load(m, seed)
    save_weights(m, w, c, d)
    c["image_embeddings_per_tile"] = S = m.img_seq_len
    rng, V, data, index = np.random.Generator(np.random.PCG64([seed, 7])), l["vocab_size"], {}, []
    top = min(V, c["image_token_index"]) if c["image_token_index"] > 0 else V

    def make(samples, tiles):
        rows = [np.concatenate([[c["image_token_index"]] if s == I else rng.integers(0, top, s) for s in sm]) for sm in samples]
        n = max(len(r) for r in rows)       # shorter text rows are filled with ordinary ids: the model has no padding mask
        rows = [np.concatenate([r, rng.integers(0, top, n - len(r))]) for r in rows]
        return np.stack(rows).astype(np.int32), rng.standard_normal((sum(tiles), 3, v["img_h"], v["img_w"])).astype(np.float32)

    m64 = build_llava(c); load(m64, seed); m64.double()
    for tag, samples, tiles in cases:
        ids, images = make(samples, tiles)
        acts = run_llava(m, c, ids, images, tiles, collect=True)
        err = worst(acts, run_llava(m64, c, ids, images, tiles, collect=True))
        im = ids == c["image_token_index"]
        ends = np.cumsum(im.sum(1))
        lens = [int(sum(tiles[e - k:e]) * S - k + ids.shape[1]) for e, k in zip(ends, im.sum(1))]
        assert acts["logits"].shape[1] == min(max(lens), l["max_position_embeddings"])
        acts.update(tokens=ids, images=images, num_image_tiles=np.array(tiles, np.int32), lengths=np.array(lens, np.int32))
        data.update({f"{tag}.{k}": a for k, a in acts.items()})
        index.append(dict(name=tag, b=len(ids), text_length=ids.shape[1], tiles=tiles, lengths=lens))
        print(f"{name:20s} {tag:14s} logits {acts['logits'].shape} std {acts['logits'].std():.2f} lengths {lens} f32-f64 {err:.1e}", flush=True)
    c["cases"], gen, gindex = index, {}, []
    for tag, sample, tiles in gens:
        for attempt in range(200):
            ids, images = make([sample], tiles)
            cur, out, margins = ids[0].tolist(), [], []
            for _ in range(count):
                lg = run_llava(m, c, np.array([cur]), images, tiles)["logits"][0, -1]
                t2 = np.sort(lg[:V])[-2:]
                margins.append(float(t2[1] - t2[0])); out.append(lg); cur.append(int(lg[:V].argmax()))
            new = np.array(cur[ids.shape[1]:], np.int32)
            if min(margins) > MIN_MARGIN and len(set(new.tolist())) >= MIN_DISTINCT and c["image_token_index"] not in new:
                break
        else:
            raise SystemExit("no suitable generation input: change the seed")
        other = run_llava(m, c, ids, images[::-1].copy() + 1.0, tiles)["logits"][0, -1]
        first = ids.shape[1] - len(tiles) + sum(tiles) * S - 1
        gen.update({f"{tag}.prompt": ids[0], f"{tag}.images": images, f"{tag}.num_image_tiles": np.array(tiles, np.int32),
                    f"{tag}.tokens": new, f"{tag}.logits": np.stack(out), f"{tag}.positions": np.arange(first, first + count, dtype=np.int32)})
        gindex.append(dict(name=tag, prompt_length=ids.shape[1], tiles=tiles, tokens_to_generate=count))
        print(f"{name:20s} gen {tag} distinct {len(set(new.tolist()))}/{count} margin {min(margins):.4f}; other images move "
              f"the first logits by {np.abs(other - out[0]).max():.2f}", flush=True)
    if gen:
        save_file(gen, os.path.join(d, "generation.safetensors"), metadata={"format": "np"})
        c["generation"] = gindex
    return data


KEEP_ALL = False
KEPT = ("images", "output", "tokens", "num_image_tiles", "lengths", "logits", "input")


def make_case(name, entry, out):
    c = json.loads(json.dumps(dict({"key_style": "te", "patched": False}, **entry[1])))
    c.update(name=name, generator=f"megatron-core {mcore.__version__}, local specs, CPU float32")
    d = os.path.join(out, name)
    os.makedirs(d, exist_ok=True)
    make = {"clip_vit": make_vit, "radio_vit": make_vit, "multimodal_projector": make_proj, "llava": make_llava}[c["architecture"]]
    data = make(name, entry[0], c, *entry[2:], d)
    if not KEEP_ALL:
        data = {k: v for k, v in data.items() if k.split(".", 1)[1] in KEPT}
    save_file({k: np.ascontiguousarray(v) for k, v in data.items()}, os.path.join(d, "cases.safetensors"), metadata={"format": "np"})
    with open(os.path.join(d, "config.json"), "w") as fh:
        json.dump(c, fh, indent=1); fh.write("\n")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", required=True)
    ap.add_argument("--only", default="")
    ap.add_argument("--all", action="store_true", help="patches, positions, layers and merged rows, too")
    a = ap.parse_args()
    global KEEP_ALL
    KEEP_ALL = a.all
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    parallel_state.initialize_model_parallel(1)
    for name, entry in PUBLIC.items():
        if not a.only or name in a.only.split(","):
            make_case(name, entry, a.out)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
