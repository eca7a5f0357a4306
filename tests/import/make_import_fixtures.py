#!/usr/bin/env python3
"""Writes distributed checkpoints with Megatron-Core's own writers, of the models in tests/golden.

    python make_import_fixtures.py --out /tmp/fixtures    # then copied here: .metadata holds the path it was written to

Needs torch (CPU), megatron-core 0.14.0, numpy and safetensors, as tests/golden/retro/make_retro_golden.py, whose models
these are. Patched to run without a GPU as there, and torch.cuda.synchronize does nothing.

| folder | from | what writes it |
|---|---|---|
| dist_retro_tp2 | golden/retro/case_a | dist_checkpointing.save on two gloo ranks: RetroModel, layers by number, tied |
| dist_t5 | golden/t5/case_d | dist_checkpointing.save on one rank: T5Model, layers stacked, gated fc1, relative positions |
| dist_gpt_tp2 | two layers of golden/retro/case_b | the same on two: GPTModel, layers stacked, swiglu, untied |
| dcp_gpt | the same | torch.distributed.checkpoint.save of the nested dict, as torch_dcp |
"""
import argparse
import json
import os
import pathlib
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/golden/retro"), str(ROOT / "tests/golden/t5")]
import torch  # noqa: E402

torch.cuda.synchronize = lambda *a, **k: None
import make_retro_golden as retro  # noqa: E402
from megatron.core import dist_checkpointing, parallel_state  # noqa: E402
from megatron.core.dist_checkpointing.strategies.torch import TorchDistSaveShardedStrategy  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402
from safetensors.torch import load_file  # noqa: E402


def case(kind, name):
    folder = ROOT / "tests/golden" / kind / name
    return json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")


def arguments(c, tp, **more):
    """What the importer reads of Megatron's arguments, and an enum, as real ones hold."""
    rope = c["position_embedding_type"] == "rope"
    return argparse.Namespace(
        num_layers=c.get("num_layers", c.get("decoder_num_layers")), hidden_size=c["hidden_size"],
        encoder_num_layers=c.get("encoder_num_layers"), decoder_num_layers=c.get("decoder_num_layers"),
        ffn_hidden_size=c["ffn_hidden_size"], num_attention_heads=c["num_attention_heads"], kv_channels=c["kv_channels"],
        num_query_groups=1, group_query_attention=False, max_position_embeddings=c["max_position_embeddings"],
        position_embedding_type=c["position_embedding_type"], rotary_percent=c["rotary_percent"], rotary_base=10000,
        rotary_interleaved=False, add_position_embedding=True, use_rotary_position_embeddings=rope,
        normalization=c["normalization"], norm_epsilon=c["layernorm_epsilon"], apply_layernorm_1p=False,
        squared_relu=False, swiglu=c["activation"] == "swiglu", bias_gelu_fusion=c["activation"] == "gelu_tanh",
        add_bias_linear=c["add_bias_linear"], untie_embeddings_and_output_weights=not c["tie_word_embeddings"],
        relative_attention_max_distance=c.get("relative_attention_max_distance"),
        tensor_model_parallel_size=tp, pipeline_model_parallel_size=1, params_dtype=torch.float32,
        attention_backend=retro.AttnBackend.auto, **more)


def part(tensor, wanted, name, rank, tp, gated):
    """The rank's part of a whole tensor, by the shape of its parameter."""
    if tensor.shape == wanted:
        return tensor
    axis = next(i for i, (a, b) in enumerate(zip(tensor.shape, wanted)) if a != b)
    if gated and "linear_fc1" in name:
        return torch.cat([half.chunk(tp)[rank] for half in tensor.chunk(2)])
    return tensor.chunk(tp, axis)[rank]


def fill(model, tensors, rank, tp, gated, te_name):
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(part(tensors[te_name(name)], p.shape, name, rank, tp, gated))


def gpt_model(c, tp):
    config = TransformerConfig(
        num_layers=c["num_layers"], hidden_size=c["hidden_size"], ffn_hidden_size=c["ffn_hidden_size"],
        num_attention_heads=c["num_attention_heads"], kv_channels=c["kv_channels"], activation_func=torch.nn.functional.silu,
        gated_linear_unit=True, add_bias_linear=False, use_cpu_initialization=True, tensor_model_parallel_size=tp,
        masked_softmax_fusion=False, normalization=c["normalization"])
    return GPTModel(config, get_gpt_layer_local_spec(), c["padded_vocab_size"], c["max_position_embeddings"],
                    share_embeddings_and_output_weights=c["tie_word_embeddings"],
                    position_embedding_type=c["position_embedding_type"], rotary_percent=c["rotary_percent"])


def save(model, args, folder, rank):
    inner = folder / "iter_0000001"
    if rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
        inner.mkdir(parents=True)
        (folder / "latest_checkpointed_iteration.txt").write_text("1")
    torch.distributed.barrier()
    state = {"args": args, "checkpoint_version": 3.0, "iteration": 1, **model.sharded_state_dict()}
    dist_checkpointing.save(state, str(inner), TorchDistSaveShardedStrategy("torch_dist", 1))


def small_gpt():
    """The first two layers of case_b."""
    c, tensors = case("retro", "case_b")
    tensors = {k: v for k, v in tensors.items() if "layers." not in k or k.startswith(("decoder.layers.0.", "decoder.layers.1."))}
    for name in ("weight", "bias"):
        tensors[f"decoder.final_layernorm.{name}"] = 0.5 + torch.arange(c["hidden_size"]) / 32
    return {**c, "num_layers": 2}, tensors


def write_gpt(rank, tp, out):
    c, tensors = small_gpt()
    for name in ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN"):
        os.environ.pop(name, None)  # set by the Retro before
    model = gpt_model(c, tp)
    fill(model, tensors, rank, tp, True, retro.te_name)
    save(model, arguments(c, tp), out / "dist_gpt_tp2", rank)


def write_retro(rank, tp, out):
    c, tensors = case("retro", "case_a")
    model = retro.build_model(c, tp)
    fill(model, tensors, rank, tp, False, retro.te_name)
    more = {"retro_chunk_length": c["retro_chunk_length"], "retro_num_neighbors": c["retro_num_neighbors"],
            "retro_num_retrieved_chunks": c["retro_retrieved_length"] // c["retro_chunk_length"]}
    save(model, arguments(c, tp, **more), out / "dist_retro_tp2", rank)


def write_t5(rank, tp, out):
    import make_t5_golden as t5
    c, tensors = case("t5", "case_d")
    model = t5.build_model(c)
    fill(model, tensors, rank, tp, True, t5.te_name)
    save(model, arguments(c, tp), out / "dist_t5", rank)


def write_dcp(rank, tp, out):
    """Flat keys with "model.", arguments as an object, no common.pt."""
    import torch.distributed.checkpoint as dcp
    c, tensors = small_gpt()
    folder = out / "dcp_gpt"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "iter_0000001").mkdir(parents=True)
    (folder / "latest_checkpointed_iteration.txt").write_text("1")
    dcp.save({"model": tensors, "args": arguments(c, tp), "iteration": 1}, checkpoint_id=str(folder / "iter_0000001"))


def worker(rank, tp, port, writers, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=tp)
    parallel_state.initialize_model_parallel(tp)
    for write in writers:
        write(rank, tp, out)
    torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, required=True)
    out = parser.parse_args().out.resolve()
    for tp, writers in ((2, (write_retro, write_gpt)), (1, (write_t5, write_dcp))):
        torch.multiprocessing.spawn(worker, (tp, retro.free_port(), writers, out), nprocs=tp)


if __name__ == "__main__":
    main()
