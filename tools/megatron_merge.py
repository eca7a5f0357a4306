#!/usr/bin/env python3
"""Makes a model folder of a checkpoint that Megatron wrote in its "torch" format, whatever its tensor and pipeline
parallel sizes.

    megatron_merge.py CHECKPOINT OUT --vocab-size N [--eod ID] [--iteration I]

CHECKPOINT holds iter_0000001/mp_rank_00/model_optim_rng.pt and so on; with several pipeline stages, mp_rank_00_000 is
tensor rank 00 of stage 000. OUT gets config.json and model.safetensors, with the
tensors' own names and types; a tokenizer is yours to add. --vocab-size is the tokenizer's: checkpoints know only the padded
one. docs/spec/retro-model.md sections 8 and 9 say how ranks split the tensors.

Needs NumPy, not PyTorch or Megatron. A pickle can name any function to call; this reader knows the few that a checkpoint
needs and makes everything else an object without behaviour, so a hostile file runs nothing.
"""
import argparse
import collections
import json
import pathlib
import pickle
import re
import sys
import zipfile

import numpy

ITEM_BYTES = {"FloatStorage": 4, "HalfStorage": 2, "BFloat16Storage": 2}
SAFETENSORS = {"FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16"}
TORCH_NAMES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}

# Parts of names; a tensor that has none of these is the same on all ranks.
SPLIT_ROWS = ("word_embeddings.weight", "output_layer.weight", "linear_qkv.weight", "linear_qkv.bias", "linear_q.weight",
              "linear_q.bias", "linear_kv.weight", "linear_kv.bias", "linear_fc1.weight", "linear_fc1.bias")
SPLIT_COLUMNS = ("linear_proj.weight", "linear_fc2.weight")


class Refused(Exception):
    """A failure that the user can do something about."""


class Unknown:
    """Stands for an object of a class that the merge does not need."""

    def __init__(self, *arguments, **named):
        pass

    def __setstate__(self, state):
        pass


Storage = collections.namedtuple("Storage", "kind key")


class Tensor:
    """Where a tensor lies in its archive: read when it is written, so that memory holds one at a time."""

    def __init__(self, storage, offset, shape, stride, *_):
        self.storage, self.offset, self.shape = storage, offset, tuple(shape)
        dense, step = [], 1
        for n in reversed(self.shape):
            dense.insert(0, step)
            step *= n
        if tuple(stride) != tuple(dense):
            raise Refused(f"a tensor of shape {self.shape} has strides {tuple(stride)}; expected rows without gaps")

    def read(self, archive):
        item = ITEM_BYTES[self.storage.kind]
        n = int(numpy.prod(self.shape, dtype=numpy.int64))
        data = archive.bytes_of(self.storage.key)
        if (self.offset + n) * item > len(data):
            raise Refused(f"{archive.path}: storage {self.storage.key} is too short for {self.shape}")
        return numpy.frombuffer(data, f"<u{item}", n, self.offset * item).reshape(self.shape)


class Archive:
    """A file of torch.save: a zip with one pickle and one file a storage."""

    def __init__(self, path):
        self.path = path
        try:
            self.zip = zipfile.ZipFile(path)
            pickles = [n for n in self.zip.namelist() if n.endswith("/data.pkl")]
            self.prefix = pickles[0].removesuffix("data.pkl")
            with self.zip.open(pickles[0]) as f:
                self.content = Reader(f).load()
        except (zipfile.BadZipFile, IndexError, pickle.UnpicklingError, EOFError) as e:
            raise Refused(f"{path}: not a file of torch.save: {e}") from e
        if not isinstance(self.content, dict) or "model" not in self.content or "args" not in self.content:
            raise Refused(f"{path}: holds no \"model\" and \"args\"; expected a checkpoint of Megatron's torch format, "
                          "without interleaved stages")
        self.tensors = {k: v for k, v in self.content["model"].items() if isinstance(v, Tensor)}

    def bytes_of(self, key):
        return self.zip.read(f"{self.prefix}data/{key}")


class Reader(pickle.Unpickler):
    def find_class(self, module, name):
        if module == "torch._utils" and name == "_rebuild_tensor_v2":
            return Tensor
        if module == "torch._utils" and name == "_rebuild_parameter":
            return lambda tensor, *_: tensor
        if module == "torch" and name.endswith("Storage"):
            return name
        known = {("collections", "OrderedDict"): collections.OrderedDict, ("argparse", "Namespace"): argparse.Namespace,
                 ("torch", "Size"): tuple}
        return known.get((module, name), Unknown)

    def persistent_load(self, pid):
        tag, kind, key = pid[:3]
        if tag != "storage" or kind not in ITEM_BYTES:
            raise Refused(f"a tensor of {kind}; float32, float16 and bfloat16 are supported")
        return Storage(kind, key)


def find_stages(checkpoint, iteration):
    """The files of each pipeline stage, one a tensor parallel rank."""
    folder = pathlib.Path(checkpoint)
    latest = folder / "latest_checkpointed_iteration.txt"
    if iteration is None:
        if not latest.exists():
            raise Refused(f"{latest} is missing: give the folder that holds it, or --iteration")
        iteration = int(latest.read_text())
    folder = folder / f"iter_{iteration:07d}"
    found = sorted(r.parent.name for r in folder.glob("mp_rank_*/model_optim_rng.pt"))
    if not found:
        raise Refused(f"{folder} holds no mp_rank_*/model_optim_rng.pt: is this the torch format?")
    archives = {name: Archive(folder / name / "model_optim_rng.pt") for name in found}
    args = archives[found[0]].content["args"]
    ranks, stages = args.tensor_model_parallel_size, args.pipeline_model_parallel_size
    names = [[f"mp_rank_{r:02d}" + (f"_{s:03d}" if stages > 1 else "") for r in range(ranks)] for s in range(stages)]
    expected = sorted(sum(names, []))
    if found != expected:
        raise Refused(f"{folder} holds {', '.join(found)}; {ranks} tensor parallel ranks of {stages} pipeline stages are "
                      f"{', '.join(expected)}")
    return [[archives[name] for name in stage] for stage in names]


def place_tensors(stages, args):
    """Where the tensors of the whole model are: name -> (stage, name there). Each stage counts its layers from 0."""
    places, layers = {}, 0
    for s, archives in enumerate(stages):
        names = sorted(archives[0].tensors)
        for archive in archives[1:]:
            if sorted(archive.tensors) != names:
                raise Refused(f"{archive.path} and {archives[0].path} hold different tensors")
        here = 0
        for name in names:
            layer = re.match(r"decoder\.layers\.(\d+)\.", name)
            whole = f"decoder.layers.{layers + int(layer[1])}.{name[layer.end():]}" if layer else name
            here = max(here, int(layer[1]) + 1) if layer else here
            if whole in places:
                raise Refused(f"{archives[0].path}: {name} is in an earlier stage, too")
            places[whole] = (s, name)
        layers += here
    if layers != args.num_layers:
        raise Refused(f"{len(stages)} stages hold {layers} layers; the checkpoint's arguments say {args.num_layers}")
    return places


def drop_tied_copy(places, stages, args):
    """The last of several stages has a copy of a tied word table, to make logits of."""
    if args.untie_embeddings_and_output_weights or "output_layer.weight" not in places:
        return
    stage, name = places.pop("output_layer.weight")
    for first, last in zip(stages[0], stages[stage]):
        word = first.tensors["embedding.word_embeddings.weight"]
        if not numpy.array_equal(word.read(first), last.tensors[name].read(last)):
            raise Refused(f"{last.path}: {name} differs from the word embeddings, and the checkpoint says they are one")


def merge(name, parts, gated):
    """One tensor of all ranks' parts."""
    if name.endswith(SPLIT_COLUMNS):
        return numpy.concatenate(parts, axis=1)
    if not name.endswith(SPLIT_ROWS):
        if not all(numpy.array_equal(parts[0], p) for p in parts[1:]):
            raise Refused(f"{name} differs between ranks, and is known as one that all share")
        return parts[0]
    if gated and "linear_fc1." in name:
        halves = [numpy.split(p, 2) for p in parts]
        return numpy.concatenate([h[0] for h in halves] + [h[1] for h in halves])
    return numpy.concatenate(parts)


def merged_shape(name, shape, ranks):
    rows, columns = name.endswith(SPLIT_ROWS), name.endswith(SPLIT_COLUMNS)
    return [n * ranks if (rows and i == 0) or (columns and i == 1) else n for i, n in enumerate(shape)]


def write_tensors(path, stages, places, gated):
    """Header first, then tensor by tensor."""
    header, at = {}, 0
    for name, (stage, there) in sorted(places.items()):
        t = stages[stage][0].tensors[there]
        shape = merged_shape(name, t.shape, len(stages[stage]))
        end = at + int(numpy.prod(shape, dtype=numpy.int64)) * ITEM_BYTES[t.storage.kind]
        header[name] = {"dtype": SAFETENSORS[t.storage.kind], "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for name in header:
            stage, there = places[name]
            parts = [a.tensors[there].read(a) for a in stages[stage]]
            whole = merge(name, parts, gated)
            if list(whole.shape) != header[name]["shape"]:
                raise Refused(f"{name}: parts of shapes {[p.shape for p in parts]} do not make {header[name]['shape']}")
            out.write(numpy.ascontiguousarray(whole).tobytes())
    return header


def choose_activation(args):
    if args.swiglu:
        return "swiglu"
    if getattr(args, "squared_relu", False):
        return "squared_relu"
    return "gelu_tanh" if args.bias_gelu_fusion else "gelu_erf"


def make_config(args, header, vocab_size, eod):
    word = header["embedding.word_embeddings.weight"]
    layers = {int(n.split(".")[2]) + 1 for n in header if n.startswith("decoder.layers.") and ".cross_attention." in n}
    config = {
        "architecture": "retro" if layers else "gpt",
        "num_layers": args.num_layers,
        "hidden_size": args.hidden_size,
        "num_attention_heads": args.num_attention_heads,
        "num_query_groups": args.num_query_groups if args.group_query_attention else args.num_attention_heads,
        "kv_channels": args.kv_channels,
        "ffn_hidden_size": args.ffn_hidden_size,
        "vocab_size": vocab_size,
        "padded_vocab_size": word["shape"][0],
        "max_position_embeddings": args.max_position_embeddings,
        "position_embedding_type": args.position_embedding_type,
        "normalization": args.normalization,
        "layernorm_epsilon": args.norm_epsilon,
        "layernorm_zero_centered_gamma": bool(args.apply_layernorm_1p),
        "activation": choose_activation(args),
        "add_bias_linear": bool(args.add_bias_linear),
        "tie_word_embeddings": not args.untie_embeddings_and_output_weights,
        "torch_dtype": TORCH_NAMES[word["dtype"]],
    }
    if args.position_embedding_type == "rope":
        config |= {"rotary_percent": args.rotary_percent, "rotary_base": args.rotary_base,
                   "rotary_interleaved": bool(getattr(args, "rotary_interleaved", False))}
    if eod is not None:
        config["eod_token_id"] = eod
    if layers:
        config |= {"retro_layers": sorted(layers), "retro_chunk_length": args.retro_chunk_length,
                   "retro_num_neighbors": args.retro_num_neighbors,
                   "retro_retrieved_length": args.retro_num_retrieved_chunks * args.retro_chunk_length,
                   "encoder_residual": "normed"}
    return config


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkpoint")
    parser.add_argument("out")
    parser.add_argument("--vocab-size", type=int, required=True, help="ids of the tokenizer, without padding")
    parser.add_argument("--eod", type=int, help="the id that ends a document")
    parser.add_argument("--iteration", type=int, help="default: the latest")
    o = parser.parse_args()
    try:
        stages = find_stages(o.checkpoint, o.iteration)
        args = stages[0][0].content["args"]
        places = place_tensors(stages, args)
        drop_tied_copy(places, stages, args)
        out = pathlib.Path(o.out)
        out.mkdir(parents=True, exist_ok=True)
        header = write_tensors(out / "model.safetensors", stages, places, bool(args.swiglu))
        config = make_config(args, header, o.vocab_size, o.eod)
        (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    except AttributeError as e:
        sys.exit(f"megatron_merge.py: the checkpoint's arguments lack one: {e}")
    except (Refused, OSError, KeyError) as e:
        sys.exit(f"megatron_merge.py: {e}")
    print(f"{len(stages)} stages of {len(stages[0])} ranks, {len(header)} tensors, {config['architecture']} in {out}")


if __name__ == "__main__":
    main()
