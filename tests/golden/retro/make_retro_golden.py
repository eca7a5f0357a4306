#!/usr/bin/env python3
"""Generate numerical golden fixtures for the Retro model from NVIDIA Megatron-Core.

    python make_retro_golden.py --out DIR [--only case_a,...] [--table cases.json]

(`--table` reads the cases, same entries as CASES below, from a JSON file instead.)

Needs: torch (CPU), megatron-core 0.14.0 (the last release whose Retro is self-consistent), numpy,
safetensors.  Transformer Engine and Apex must be absent: the *local* layer specs are used.

What is reference and what is ours
  * The forward pass is Megatron-Core's own RetroModel, in eval mode, float32, on the CPU.
  * Patched only to run without a GPU (no effect on the maths in eval mode): torch.cuda.current_device
    returns "cpu", the CUDA RNG tracker is a no-op, torch.compile is disabled, and the Transformer Engine
    version test in RetroConfig (which crashes when TE is absent) answers False.
  * config.json "patched": false  -> unmodified Megatron-Core maths.
    config.json "patched": true   -> case_e*: the two differences of the *legacy* Megatron Retro are
    emulated by LegacyEncoderCrossAttention / LegacyDecoderBDA below (encoder cross-attention residual
    is the pre-norm stream; CCA output incl. its bias is multiplied by retro_attention_gate).
  * layernorm_zero_centered_gamma is not covered: Megatron's torch fallback norm refuses it.
  * Weights are seeded normal noise (numpy PCG64, one stream per parameter name), never a trained model;
    no bias is zero, no norm weight is one.  State-dict keys are Megatron's Transformer Engine names,
    checked here against RetroModel.sharded_state_dict().
Determinism: token ids, neighbours and weights are bit-identical on every machine; logits may differ in
the last bits between CPUs / BLAS builds.  Greedy margins are asserted to be > MIN_MARGIN.
"""
import argparse, contextlib, json, os, re, socket, sys, zlib

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

from megatron.core import parallel_state, tensor_parallel
import megatron.core as mcore
from megatron.core.models.retro.config import RetroConfig
from megatron.core.models.retro.decoder_attention import RetroDecoderBiasDropoutAdd
from megatron.core.models.retro.decoder_spec import get_retro_decoder_block_spec
from megatron.core.models.retro.encoder_attention import RetroEncoderCrossAttention
from megatron.core.models.retro.model import RetroModel
from megatron.core.transformer.enums import AttnBackend
from megatron.core.transformer.torch_norm import WrappedTorchNorm


class _NoRng:
    """Stands in for the CUDA RNG tracker; only dropout uses it and dropout is off in eval mode."""
    @contextlib.contextmanager
    def fork(self, *a, **k):
        yield


import megatron.core.models.retro.config as _retro_config
_retro_config.is_te_min_version = lambda *a, **k: False   # crashes (None >= version) when TE is absent
tensor_parallel.get_cuda_rng_tracker = lambda *a, **k: _NoRng()
tensor_parallel.random.get_cuda_rng_tracker = lambda *a, **k: _NoRng()
tensor_parallel.layers.get_cuda_rng_tracker = lambda *a, **k: _NoRng()

MIN_MARGIN = 2e-3      # smallest allowed top1-top2 logit gap in a greedy golden
PAD_EQ_TOL = 1e-5      # allowed change of read logits when pad ids / later neighbours change

# ------------------------------------------------------------------------------------------ cases
BASE = dict(architecture="retro", rotary_percent=1.0, rotary_base=10000, rotary_interleaved=False,
            layernorm_epsilon=1e-5, layernorm_zero_centered_gamma=False, retro_encoder_num_layers=2,
            encoder_residual="normed", retro_attention_gate=1.0, final_norm=False, patched=False)
LEGACY = dict(num_layers=9, hidden_size=32, num_attention_heads=4, kv_channels=8, ffn_hidden_size=64,
              vocab_size=256, padded_vocab_size=256, max_position_embeddings=48,
              position_embedding_type="learned_absolute", normalization="LayerNorm",
              activation="gelu_tanh", add_bias_linear=True, tie_word_embeddings=True,
              retro_chunk_length=8, retro_num_neighbors=2, retro_retrieved_length=16,
              encoder_residual="raw", final_norm=True, patched=True)
# entry: name -> (seed, config overrides, [(n, b)...], [prompt lengths of greedy goldens], tokens to generate)
CASES = {
    "case_a": (101, dict(
        num_layers=6, hidden_size=32, num_attention_heads=4, kv_channels=8, ffn_hidden_size=128,
        vocab_size=250, padded_vocab_size=256, max_position_embeddings=64,
        position_embedding_type="learned_absolute", normalization="LayerNorm", activation="gelu_tanh",
        add_bias_linear=True, tie_word_embeddings=True,
        retro_chunk_length=8, retro_num_neighbors=2, retro_retrieved_length=16),
        [(24, 1), (24, 2), (20, 1), (20, 2), (9, 1), (9, 2), (8, 1), (8, 2), (1, 1), (1, 2)], [13, 16], 27),
    "case_b": (202, dict(
        num_layers=12, hidden_size=32, num_attention_heads=4, kv_channels=8, ffn_hidden_size=64,
        vocab_size=250, padded_vocab_size=256, max_position_embeddings=64,
        position_embedding_type="rope", rotary_percent=0.5, normalization="LayerNorm",
        activation="swiglu", add_bias_linear=False, tie_word_embeddings=False,
        retro_chunk_length=4, retro_num_neighbors=3, retro_retrieved_length=8),
        [(24, 1), (22, 2), (5, 1), (3, 1)], [7, 3], 15),
    "case_c": (303, dict(          # kv_channels * heads (64) deliberately differs from hidden_size
        num_layers=9, hidden_size=32, num_attention_heads=4, kv_channels=16, ffn_hidden_size=80,
        vocab_size=500, padded_vocab_size=512, max_position_embeddings=64,
        position_embedding_type="rope", rotary_percent=1.0, normalization="RMSNorm",
        layernorm_epsilon=1e-6, activation="gelu_erf", add_bias_linear=False, tie_word_embeddings=True,
        final_norm=True, retro_chunk_length=16, retro_num_neighbors=1, retro_retrieved_length=16),
        [(48, 1), (40, 2), (17, 1)], [], 0),
    "case_e_legacy_raw": (505, dict(LEGACY), [(24, 1), (20, 2)], [], 0),
    "case_e_legacy_raw_gate": (505, dict(LEGACY, retro_attention_gate=0.5), [(24, 1), (20, 2)], [], 0),
}
TP_CASE = "case_b"     # also written as a 2-way tensor-parallel legacy "torch" checkpoint


# ------------------------------------------------------------------------------------------ model
class LegacyEncoderCrossAttention(RetroEncoderCrossAttention):
    """PATCH (case_e*): legacy Megatron adds the *pre-norm* stream Y back, not LN_cross(Y).
    The transformer layer hands only LN_cross(Y) to this module, so Y is caught by a pre-hook on the norm
    (see build_model) and substituted in the returned residuals."""
    raw = None

    def forward(self, *a, **k):
        out = super().forward(*a, **k)
        y = self.raw.reshape(self.retro_retrieved_length, -1, self.retro_num_neighbors, self.raw.shape[-1])
        return [(o, bias, y[:, :, i]) for i, (o, bias, _) in enumerate(out)]


class LegacyDecoderBDA(RetroDecoderBiasDropoutAdd):
    """PATCH (case_e*): out = gate * pad(attention_output + bias) + residual."""
    gate = 1.0

    def forward(self, training, fused):
        f = super().forward(training, fused)
        return lambda x, residual, prob: self.gate * f(x, torch.zeros_like(residual), prob) + residual


def retro_layers(num_layers):
    return list(range(6 if num_layers <= 15 else 9, num_layers + 1, 3))


def build_model(c, tp=1):
    act = {"gelu_tanh": (F.gelu, False, True), "gelu_erf": (F.gelu, False, False),
           "swiglu": (F.silu, True, True)}[c["activation"]]
    cfg = RetroConfig(
        num_layers=c["num_layers"], hidden_size=c["hidden_size"], ffn_hidden_size=c["ffn_hidden_size"],
        num_attention_heads=c["num_attention_heads"], kv_channels=c["kv_channels"],
        normalization=c["normalization"], layernorm_epsilon=c["layernorm_epsilon"],
        activation_func=act[0], gated_linear_unit=act[1], bias_activation_fusion=act[2],
        add_bias_linear=c["add_bias_linear"], rotary_interleaved=c["rotary_interleaved"],
        hidden_dropout=0.0, attention_dropout=0.0, use_cpu_initialization=True,
        params_dtype=torch.float32, tensor_model_parallel_size=tp, masked_softmax_fusion=False,
        retro_chunk_length=c["retro_chunk_length"], retro_num_neighbors=c["retro_num_neighbors"],
        retro_num_retrieved_chunks=c["retro_retrieved_length"] // c["retro_chunk_length"],
        retro_encoder_num_layers=c["retro_encoder_num_layers"], retro_split_preprocessing="98,2,0")
    assert cfg.retro_retrieved_length == c["retro_retrieved_length"]
    spec = get_retro_decoder_block_spec(cfg, use_transformer_engine=False)
    if c["final_norm"]:
        spec.layer_norm = WrappedTorchNorm        # what core <= 0.7.0 did unconditionally
    first = retro_layers(c["num_layers"])[0] - 1
    if c["patched"]:
        enc = spec.layer_specs[first].submodules.cross_attention.params["encoder_block_spec"]
        enc.layer_specs[0].submodules.cross_attention.module = LegacyEncoderCrossAttention
        for i in retro_layers(c["num_layers"]):
            spec.layer_specs[i - 1].submodules.cross_attn_bda.module = LegacyDecoderBDA
    m = RetroModel(config=cfg, transformer_layer_spec=spec, vocab_size=c["padded_vocab_size"],
                   max_sequence_length=c["max_position_embeddings"],
                   share_embeddings_and_output_weights=c["tie_word_embeddings"],
                   position_embedding_type=c["position_embedding_type"],
                   rotary_percent=c["rotary_percent"]).eval()
    if c["patched"]:
        e0 = m.decoder.layers[first].cross_attention.encoder.layers[0]
        assert isinstance(e0.cross_attention, LegacyEncoderCrossAttention)
        e0.pre_cross_attn_layernorm.register_forward_pre_hook(
            lambda mod, a: setattr(e0.cross_attention, "raw", a[0]))
        for i in retro_layers(c["num_layers"]):
            assert isinstance(m.decoder.layers[i - 1].cross_attn_bda, LegacyDecoderBDA)
            m.decoder.layers[i - 1].cross_attn_bda.gate = c["retro_attention_gate"]
    return m


def noise(seed, name, shape):
    return np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())])) \
        .standard_normal(shape).astype(np.float32)


def te_name(k):
    """Local-spec parameter name -> Transformer Engine / distributed-checkpoint name."""
    k = re.sub(r"\.input_layernorm\.(weight|bias)$", r".self_attention.linear_qkv.layer_norm_\1", k)
    return re.sub(r"\.pre_mlp_layernorm\.(weight|bias)$", r".mlp.linear_fc1.layer_norm_\1", k)


def init_value(seed, name, shape, tied):
    """Seeded noise for the parameter with TE name `name`."""
    z = noise(seed, name, shape)
    if "layernorm" in name or "layer_norm" in name:
        return 1.0 + 0.25 * z if name.endswith("weight") else 0.2 * z
    if name.endswith("bias"):
        return (0.1 if "linear_proj" in name or "linear_fc2" in name else 0.2) * z
    if "word_embeddings" in name:
        return (0.18 if tied else 0.4) * z
    if "position_embeddings" in name:
        return 0.7 * z
    gain = {"linear_qkv": 1.4, "linear_q": 1.5, "linear_kv": 1.5, "linear_proj": 0.6, "linear_fc1": 1.3,
            "linear_fc2": 0.6, "output_layer": 2.0}[name.split(".")[-2]]
    if not tied:                        # the deeper models: keep float32 noise in the logits below 5e-5
        gain *= 0.75
    return (gain / np.sqrt(shape[1])) * z


def full_weights(model, seed):
    tied = model.share_embeddings_and_output_weights
    return {te_name(n): np.ascontiguousarray(init_value(seed, te_name(n), tuple(p.shape), tied), np.float32)
            for n, p in model.named_parameters()}


def load(model, w):
    with torch.no_grad():
        for n, p in model.named_parameters():
            p.copy_(torch.from_numpy(w[te_name(n)]))


def check_key_names(model, w):
    """Our TE names must be exactly the keys Megatron's distributed checkpoint would use."""
    sharded = set()
    for k, v in model.sharded_state_dict().items():
        key = getattr(v, "key", k)
        if not key.endswith("_extra_state"):
            sharded.add(key)
    assert sharded == set(w), (sorted(sharded - set(w))[:5], sorted(set(w) - sharded)[:5])


# ---------------------------------------------------------------------------------------- forward
def chunks(n, m):
    return -(-n // m)


@torch.no_grad()
def forward(model, c, tokens, neigh, collect=False):
    """tokens [b,n], neigh [b,l,k,r] -> logits [b,n,V] (numpy) and, if asked, intermediates."""
    b, n = tokens.shape
    l, k, r, d = chunks(n, c["retro_chunk_length"]), c["retro_num_neighbors"], c["retro_retrieved_length"], c["hidden_size"]
    assert neigh.shape == (b, l, k, r)
    t = torch.from_numpy(tokens.astype(np.int64))
    ctx = torch.from_numpy(neigh.astype(np.int64)).reshape(b * l * k, r)
    pos = torch.arange(n)[None].expand(b, n)
    cpos = torch.arange(r)[None].expand(b * l * k, r)
    mask = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)[None, None]
    acts, hooks = {}, []
    if collect:
        def keep(name, tr):
            return lambda mod, a, out: acts.__setitem__(name, np.ascontiguousarray(tr(out).float().numpy()))
        hooks.append(model.embedding.register_forward_hook(keep("embedding", lambda o: o.transpose(0, 1))))
        f = retro_layers(c["num_layers"])[0] - 1
        hooks.append(model.decoder.layers[f].cross_attention.encoder.register_forward_hook(keep(
            "encoder", lambda o: o.reshape(r, k, b, l, d).permute(2, 3, 1, 0, 4))))   # neighbour-major columns
        for i, layer in enumerate(model.decoder.layers):
            hooks.append(layer.register_forward_hook(keep(f"layer.{i}", lambda o: o[0].transpose(0, 1))))
    logits = model(t, pos, mask, context_input_ids=ctx, context_position_ids=cpos, context_mask=None)
    for h in hooks:
        h.remove()
    return logits.float().numpy(), acts


def used_chunk(p, P, m):
    """Chunk whose neighbours position p attends to, on the grid fixed at prompt length P (-1: none)."""
    f = P % m or m
    return (p + 1 - f) // m if p + 1 >= f else -1


def generate(model, c, prompt, neigh, count, pads, rng):
    """Greedy decoding, chunk grid fixed at the prompt end, full recompute at every step.
    Asserts that pad ids and neighbours of later chunks never reach the logits that are read, and that
    the neighbours of the used chunk do."""
    m, P, V = c["retro_chunk_length"], len(prompt), c["vocab_size"]
    cur, out, margins, dpad, dlater, duse = list(prompt), [], [], 0.0, 0.0, 1e9
    for _ in range(count):
        n = len(cur) + (P - len(cur)) % m                      # smallest n >= len with n = P (mod m)
        l, p = chunks(n, m), len(cur) - 1
        def run(pad, nb):
            row = np.array([cur + [pad] * (n - len(cur))], np.int32)
            return forward(model, c, row, nb[None, :l])[0][0, p]
        lg = run(pads[0], neigh)
        dpad = max(dpad, np.abs(run(pads[1], neigh) - lg).max())
        j = used_chunk(p, P, m)
        other = rng.integers(0, V, neigh.shape).astype(np.int32)
        alt = neigh.copy(); alt[j + 1:] = other[j + 1:]
        dlater = max(dlater, np.abs(run(pads[0], alt) - lg).max())
        alt = neigh.copy(); alt[j] = other[j]
        duse = min(duse, np.abs(run(pads[0], alt) - lg).max())
        top = np.sort(lg[:V])[-2:]
        margins.append(float(top[1] - top[0]))
        out.append(lg); cur.append(int(lg[:V].argmax()))
    assert dpad <= PAD_EQ_TOL and dlater <= PAD_EQ_TOL and duse > 1e-3, (dpad, dlater, duse)
    assert min(margins) > MIN_MARGIN, ("greedy margin too small, change the seed", min(margins))
    return np.array(cur[P:], np.int32), np.stack(out), dict(pad=dpad, later=dlater, used=duse, margin=min(margins))


# ------------------------------------------------------------------------------------------ write
def make_case(name, entry, out):
    seed, over, shapes, prompts, count = entry
    c = dict(BASE, **over); c["name"] = name
    c["num_query_groups"] = c["num_attention_heads"]
    c["retro_layers"] = retro_layers(c["num_layers"])
    c["generator"] = f"megatron-core {mcore.__version__}, local specs, CPU float32"
    d = os.path.join(out, name)
    os.makedirs(d, exist_ok=True)
    model = build_model(c)
    w = full_weights(model, seed)
    load(model, w)
    check_key_names(model, w)
    save_file(w, os.path.join(d, "model.safetensors"), metadata={"format": "pt"})
    rng = np.random.Generator(np.random.PCG64([seed, 7]))
    m, k, r, V = c["retro_chunk_length"], c["retro_num_neighbors"], c["retro_retrieved_length"], c["vocab_size"]
    data, index = {}, []
    for n, b in shapes:
        tag = f"n{n}_b{b}"
        tok = rng.integers(0, V, (b, n)).astype(np.int32)
        nb = rng.integers(0, V, (b, chunks(n, m), k, r)).astype(np.int32)
        logits, acts = forward(model, c, tok, nb, collect=True)
        data.update({f"{tag}.tokens": tok, f"{tag}.neighbors": nb, f"{tag}.logits": logits})
        data.update({f"{tag}.{kk}": v for kk, v in acts.items()})
        index.append(dict(name=tag, n=n, b=b, l=chunks(n, m)))
        last = acts["layer.%d" % (c["num_layers"] - 1)]
        print(f"{name:24s} {tag:8s} hidden std {last.std():.2f} "
              f"logits std {logits.std():.2f} max {np.abs(logits).max():.1f}", flush=True)
    save_file({kk: np.ascontiguousarray(v) for kk, v in data.items()}, os.path.join(d, "cases.safetensors"),
              metadata={"format": "np"})       # one key only: two would be written in random order
    c["cases"] = index
    gen, gindex = {}, []
    for P in prompts:
        tag = f"p{P}"
        lmax = chunks(P, m) + chunks(count - 1, m)
        prompt = rng.integers(0, V, P).astype(np.int32)
        nb = rng.integers(0, V, (lmax, k, r)).astype(np.int32)
        pads = [0, int(V - 1)]
        new, lg, stats = generate(model, c, prompt.tolist(), nb, count, pads, rng)
        pos = np.arange(P - 1, P - 1 + count, dtype=np.int32)
        gen.update({f"{tag}.prompt": prompt, f"{tag}.neighbors": nb, f"{tag}.tokens": new, f"{tag}.logits": lg,
                    f"{tag}.positions": pos,
                    f"{tag}.used_chunk": np.array([used_chunk(int(p), P, m) for p in pos], np.int32)})
        gindex.append(dict(name=tag, prompt_length=P, grid_offset=P % m, tokens_to_generate=count, l_max=lmax))
        print(f"{name:24s} gen P={P} distinct {len(set(new.tolist()))}/{count} max-abs change: pad ids "
              f"{stats['pad']:.1e}, later neighbours {stats['later']:.1e}; min change from used neighbours "
              f"{stats['used']:.2f}; min margin {stats['margin']:.4f}", flush=True)
    if gen:
        save_file(gen, os.path.join(d, "generation.safetensors"), metadata={"format": "np"})
        c["generation"] = gindex
    with open(os.path.join(d, "config.json"), "w") as fh:
        json.dump(c, fh, indent=1); fh.write("\n")
    return c, w


# --------------------------------------------------------------------------- tensor-parallel shard
def tp_slice(name, t, rank, tp, gated):
    """Rank's part of a full tensor."""
    leaf = ".".join(name.split(".")[-2:])
    if "position_embeddings" in name or "layernorm" in name or "layer_norm" in name:
        return t
    if leaf in ("linear_proj.weight", "linear_fc2.weight"):
        return np.ascontiguousarray(np.split(t, tp, 1)[rank])
    if leaf in ("linear_proj.bias", "linear_fc2.bias"):
        return t
    if leaf.startswith("linear_fc1.") and gated:
        gate, up = np.split(t, 2, 0)
        return np.concatenate([np.split(gate, tp, 0)[rank], np.split(up, tp, 0)[rank]], 0)
    return np.ascontiguousarray(np.split(t, tp, 0)[rank])


def _tp_worker(rank, tp, port, c, w, tok, nb, outdir, q):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=tp)
    parallel_state.initialize_model_parallel(tp)
    model = build_model(c, tp)
    mine = {k: tp_slice(k, v, rank, tp, c["activation"] == "swiglu") for k, v in w.items()}
    load(model, mine)                                         # copy_ checks every shape
    logits, _ = forward(model, c, tok, nb)
    parts = [None] * tp
    torch.distributed.all_gather_object(parts, logits)
    ns = argparse.Namespace(
        num_layers=c["num_layers"], hidden_size=c["hidden_size"], ffn_hidden_size=c["ffn_hidden_size"],
        num_attention_heads=c["num_attention_heads"], kv_channels=c["kv_channels"], num_query_groups=1,
        group_query_attention=False, max_position_embeddings=c["max_position_embeddings"],
        seq_length=c["max_position_embeddings"], encoder_seq_length=c["max_position_embeddings"],
        position_embedding_type=c["position_embedding_type"], rotary_percent=c["rotary_percent"],
        rotary_base=10000, rotary_interleaved=False, normalization=c["normalization"],
        norm_epsilon=c["layernorm_epsilon"], apply_layernorm_1p=False, squared_relu=False,
        swiglu=c["activation"] == "swiglu",
        add_bias_linear=c["add_bias_linear"], bias_gelu_fusion=c["activation"] == "gelu_tanh", bias_swiglu_fusion=True,
        untie_embeddings_and_output_weights=not c["tie_word_embeddings"], padded_vocab_size=c["padded_vocab_size"],
        make_vocab_size_divisible_by=128, tensor_model_parallel_size=tp, pipeline_model_parallel_size=1,
        world_size=tp, rank=rank, params_dtype=torch.float32, bf16=False, fp16=False, iteration=1,
        retro_add_retriever=True, retro_project_dir=None, retro_chunk_length=c["retro_chunk_length"],
        retro_num_neighbors=c["retro_num_neighbors"], retro_encoder_layers=2, retro_attention_gate=1,
        retro_num_retrieved_chunks=c["retro_retrieved_length"] // c["retro_chunk_length"],
        ckpt_format="torch", use_mcore_models=True, transformer_impl="transformer_engine",
        attention_backend=AttnBackend.auto)           # real args hold this enum too
    sd = {}
    for k, v in model.state_dict_for_save_checkpoint().items():  # keeps Megatron's own key order
        sd[te_name(k)] = v.detach().clone() if torch.is_tensor(v) else v   # *_extra_state stay None
    d = os.path.join(outdir, "iter_0000001", f"mp_rank_{rank:02d}")
    os.makedirs(d, exist_ok=True)
    torch.save({"args": ns, "checkpoint_version": 3.0, "iteration": 1, "model": sd},
               os.path.join(d, "model_optim_rng.pt"))
    if rank == 0:
        with open(os.path.join(outdir, "latest_checkpointed_iteration.txt"), "w") as fh:
            fh.write("1")
        q.put(np.concatenate(parts, -1))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def make_tp(c, w, out, tp=2):
    from safetensors.numpy import load_file
    cases = load_file(os.path.join(out, c["name"], "cases.safetensors"))
    tag = c["cases"][1]["name"]
    ctx = torch.multiprocessing.get_context("spawn")
    q = ctx.Queue()
    args = (tp, free_port(), c, w, cases[f"{tag}.tokens"], cases[f"{tag}.neighbors"],
            os.path.join(out, c["name"] + f"_tp{tp}"), q)
    procs = [ctx.Process(target=_tp_worker, args=(i,) + args) for i in range(tp)]
    [p.start() for p in procs]
    got = q.get(timeout=300)
    [p.join() for p in procs]
    err = np.abs(got - cases[f"{tag}.logits"]).max()
    print(f"{c['name']} tp={tp} {tag}: max |logits(tp={tp}) - logits(tp=1)| = {err:.1e}")
    assert err < 1e-4


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", required=True)
    ap.add_argument("--only", default="")
    ap.add_argument("--table", default=None)
    a = ap.parse_args()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    parallel_state.initialize_model_parallel(1)
    table = json.load(open(a.table)) if a.table else CASES
    for name, entry in table.items():
        if a.only and name not in a.only.split(","):
            continue
        c, w = make_case(name, entry, a.out)
        if name == TP_CASE:
            make_tp(c, w, a.out)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
