"""Writes checkpoints as Megatron does, without PyTorch: the same zips, pickles and names, from the tensors of a model
folder."""
import argparse
import collections
import json
import pickle
import struct
import sys
import types
import zlib

import numpy as np

STORAGES = {"F32": ("FloatStorage", 4), "F16": ("HalfStorage", 2), "BF16": ("BFloat16Storage", 2), "U8": ("ByteStorage", 1)}
NUMPY = {"I32": "<i4", "I8": "i1", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "U8": "u1"}

Tensor = collections.namedtuple("Tensor", "kind array")


def read_safetensors(path):
    """name -> Tensor; bfloat16 as its bits."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header, body = json.loads(raw[8:8 + size]), raw[8 + size:]
    header.pop("__metadata__", None)
    return {name: Tensor(t["dtype"], np.frombuffer(body[slice(*t["data_offsets"])], NUMPY[t["dtype"]]).reshape(t["shape"]))
            for name, t in header.items()}


def plain(tensors):
    """What two sets of tensors are compared by."""
    return {name: (t.kind, t.array.shape, t.array.tobytes()) for name, t in tensors.items()}


def read_folder(folder):
    """All tensors of a model folder, whatever its number of files."""
    return {name: t for path in sorted(folder.glob("*.safetensors")) if path.name.startswith("model")
            for name, t in read_safetensors(path).items()}


def as_bf16(tensors):
    return {name: Tensor("BF16", (t.array.view("<u4") >> 16).astype("<u2")) for name, t in tensors.items()}


# PyTorch's files.

class Zip:
    """Stored files, whose sizes are in the central directory alone, with 64-bit fields; a size instead of bytes is a
    hole."""

    def __init__(self, path):
        self.file, self.entries = open(path, "wb"), []

    def add(self, name, data):
        at, name = self.file.tell(), name.encode()
        size = data if isinstance(data, int) else len(data)
        padding = -(at + 30 + len(name) + 4) % 64
        self.file.write(struct.pack("<4s5H3I2H", b"PK\3\4", 0, 0x808, 0, 0, 0, 0, 0, 0, len(name), 4 + padding) + name)
        self.file.write(struct.pack("<2s H", b"FB", padding) + bytes(padding))
        if isinstance(data, int):
            self.file.seek(size, 1)
        else:
            self.file.write(data)
        crc = 0 if isinstance(data, int) else zlib.crc32(data)
        self.entries.append((name, at, size, crc))

    def close(self, method=0):
        start = self.file.tell()
        for name, at, size, crc in self.entries:
            extra = struct.pack("<2H3Q", 1, 24, size, size, at)
            self.file.write(struct.pack("<4s6H3I5H2I", b"PK\1\2", 0, 0, 0x808, method, 0, 0, crc, 0xFFFFFFFF, 0xFFFFFFFF,
                                        len(name), len(extra), 0, 0, 0, 0, 0xFFFFFFFF) + name + extra)
        end = self.file.tell()
        n = len(self.entries)
        self.file.write(struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 0, 45, 0, 0, n, n, end - start, start))
        self.file.write(struct.pack("<4sIQI", b"PK\6\7", 0, end, 1))
        self.file.write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, min(n, 0xFFFF), min(n, 0xFFFF),
                                    min(end - start, 0xFFFFFFFF), min(start, 0xFFFFFFFF), 0))
        self.file.close()


def torch_names():
    """The modules and names of PyTorch's that its pickles hold."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    utils._rebuild_tensor_v2 = lambda *_: None
    utils._rebuild_tensor_v2.__module__, utils._rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    for storage, _ in STORAGES.values():
        setattr(torch, storage, type(storage, (), {"__module__": "torch"}))
    return torch, utils


class Saved:
    """A tensor within what is pickled; a kind and a shape instead of an array make a hole."""

    def __init__(self, tensor, key):
        self.kind, self.key = tensor.kind, key
        array = tensor.array
        self.shape = tuple(array) if isinstance(array, tuple) else array.shape
        self.data = None if isinstance(array, tuple) else np.ascontiguousarray(array).tobytes()
        self.elements = int(np.prod(self.shape, dtype=np.int64))

    def __reduce__(self):
        strides, step = [], 1
        for n in reversed(self.shape):
            strides.insert(0, step)
            step *= n
        arguments = (Storage(self), 0, self.shape, tuple(strides), False, collections.OrderedDict())
        return sys.modules["torch._utils"]._rebuild_tensor_v2, arguments


class Storage:
    def __init__(self, saved):
        self.saved = saved


class Pickler(pickle.Pickler):
    def persistent_id(self, thing):
        if not isinstance(thing, Storage):
            return None
        saved = thing.saved
        storage = getattr(sys.modules["torch"], STORAGES[saved.kind][0])
        return "storage", storage, saved.key, "cuda:0", saved.elements


def torch_save(path, content):
    """The file that torch.save makes of dicts, plain values and Tensors."""
    import io
    saved, before = [], {name: sys.modules.get(name) for name in ("torch", "torch._utils")}

    def replace(value):
        if isinstance(value, Tensor):
            saved.append(Saved(value, str(len(saved))))
            return saved[-1]
        if isinstance(value, list):
            return [replace(v) for v in value]
        return type(value)((k, replace(v)) for k, v in value.items()) if isinstance(value, dict) else value

    sys.modules["torch"], sys.modules["torch._utils"] = torch_names()
    try:
        text = io.BytesIO()
        Pickler(text, 2).dump(replace(content))
    finally:
        for name, module in before.items():
            sys.modules.pop(name) if module is None else sys.modules.update({name: module})
    path.parent.mkdir(parents=True, exist_ok=True)
    z = Zip(path)
    z.add("archive/data.pkl", text.getvalue())
    z.add("archive/byteorder", b"little")
    for t in saved:
        z.add(f"archive/data/{t.key}", t.elements * STORAGES[t.kind][1] if t.data is None else t.data)
    z.add("archive/version", b"3\n")
    z.close()


# Megatron's ranks, stages and names.

ROWS = ("word_embeddings.weight", "output_layer.weight", "output_layer.bias", "linear_qkv.weight", "linear_qkv.bias",
        "linear_q.weight", "linear_q.bias", "linear_kv.weight", "linear_kv.bias", "linear_fc1.weight", "linear_fc1.bias")
COLUMNS = ("linear_proj.weight", "linear_fc2.weight")


def part_of(name, tensor, rank, ranks, gated):
    """One rank's part of a tensor; of a shape alone its shape."""
    if isinstance(tensor.array, tuple):
        shape = list(tensor.array)
        if name.endswith(ROWS) or name.endswith(COLUMNS):
            shape[1 if name.endswith(COLUMNS) else 0] //= ranks
        return Tensor(tensor.kind, tuple(shape))
    array = tensor.array
    if name.endswith(COLUMNS):
        array = np.split(array, ranks, axis=1)[rank]
    elif name.endswith(ROWS) and gated and "linear_fc1." in name:
        array = np.concatenate([np.split(half, ranks)[rank] for half in np.split(array, 2)])
    elif name.endswith(ROWS):
        array = np.split(array, ranks)[rank]
    return Tensor(tensor.kind, array)


def layer_of(name):
    parts = name.split(".")
    return (parts[0], int(parts[2])) if len(parts) > 2 and parts[1] == "layers" else (None, None)


def stage_part(tensors, first, end, stage, stages, tied):
    """The tensors of the decoder's layers first .. end, counted from 0; the first stage has the word table, the last the
    output."""
    here = {}
    for name, tensor in tensors.items():
        stack, layer = layer_of(name)
        if stack == "decoder" and first <= layer < end:
            here[name.replace(f"decoder.layers.{layer}.", f"decoder.layers.{layer - first}.", 1)] = tensor
        elif layer is None and (stage == 0 if name.startswith("embedding.") else stage == stages - 1):
            here[name] = tensor
    if tied and stage == stages - 1 and stages > 1:
        here["output_layer.weight"] = tensors["embedding.word_embeddings.weight"]
    return here


LEGACY = {"self_attention.linear_qkv.layer_norm_": "input_norm.", "self_attention.linear_qkv.": "self_attention.query_key_value.",
          "self_attention.linear_proj.": "self_attention.dense.", "pre_cross_attn_layernorm.": "post_attention_norm.",
          "cross_attention.attn.linear_q.": "inter_attention.query.",
          "cross_attention.attn.linear_kv.": "inter_attention.key_value.",
          "cross_attention.attn.linear_proj.": "inter_attention.dense.",
          "pre_mlp_layernorm.norm.": "post_inter_attention_norm.",
          "mlp.linear_fc1.": "mlp.dense_h_to_4h.", "mlp.linear_fc2.": "mlp.dense_4h_to_h."}


def legacy_tail(tail, cross):
    if tail.startswith("mlp.linear_fc1.layer_norm_"):
        norm = "post_inter_attention_norm." if cross else "post_attention_norm."
        return norm + tail.removeprefix("mlp.linear_fc1.layer_norm_")
    for ours, theirs in LEGACY.items():
        if tail.startswith(ours):
            return theirs + tail.removeprefix(ours)
    raise KeyError(tail)


def legacy_name(name, cross_layers):
    """The name of Megatron-LM's own models, without "language_model."."""
    stack, layer = layer_of(name)
    if layer is None:
        name = name.replace("decoder.final_layernorm.", "encoder.final_norm.")
        return "word_embeddings_for_head.weight" if name == "tied copy" else name
    tail = name.split(".", 3)[3]
    retriever = "cross_attention.encoder.layers."
    if tail.startswith(retriever):
        j, tail = tail.removeprefix(retriever).split(".", 1)
        return f"encoder.layers.{layer}.retriever.layers.{j}.{legacy_tail(tail, j == '0')}"
    return f"encoder.layers.{layer}.{legacy_tail(tail, layer in cross_layers)}"


def nest_legacy(tensors, cross_layers):
    """model -> language_model -> embedding, encoder, output_layer."""
    model = collections.OrderedDict(language_model=collections.OrderedDict())
    inner = model["language_model"]
    for name, tensor in tensors.items():
        name = legacy_name(name, cross_layers)
        if name.startswith("encoder."):
            inner.setdefault("encoder", collections.OrderedDict())[name.removeprefix("encoder.")] = tensor
        elif name.startswith("embedding."):
            _, table, weight = name.split(".")
            inner.setdefault("embedding", {})[table] = {weight: tensor}
        elif name == "output_layer.weight":
            inner["output_layer"] = {"weight": tensor}
    return model


def namespace(**values):
    return argparse.Namespace(**values)


def write_ranks(folder, ranks, model_of, args, version=3.0, tracker="1", extra=None, stages=1):
    """model_of(rank, stage) -> what "model" is, or a dict of "model0", "model1" ..."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "latest_checkpointed_iteration.txt").write_text(tracker)
    inner = folder / (tracker if tracker == "release" else f"iter_{int(tracker):07d}")
    for r in range(ranks):
        for s in range(stages):
            content = {"args": args, "iteration": 1, **(extra or {})}
            if version is not None:
                content["checkpoint_version"] = version
            model = model_of(r, s)
            content.update(model if "model0" in model else {"model": model})
            torch_save(inner / (f"mp_rank_{r:02d}" + (f"_{s:03d}" if stages > 1 else "")) / "model_optim_rng.pt", content)
    return inner


# Distributed checkpoints.

class Box:
    """A part of a tensor at an offset."""

    def __init__(self, offset, tensor):
        self.offset, self.tensor = tuple(offset), tensor


def fake_class(module, name):
    return type(name, (), {"__module__": module, "__qualname__": name})


METADATA, FILESYSTEM = "torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem"
CLASSES = {name: fake_class(METADATA, name) for name in ("Metadata", "TensorStorageMetadata", "TensorProperties",
                                                         "ChunkStorageMetadata", "BytesStorageMetadata", "MetadataIndex")}
CLASSES["_StorageInfo"] = fake_class(FILESYSTEM, "_StorageInfo")


def record(name, **attributes):
    made = CLASSES[name]()
    made.__dict__.update(attributes)
    return made


class Dtype:
    """Pickled as the name torch.float32."""

    def __init__(self, name):
        self.name = name

    def __reduce__(self):
        return self.name

    __module__ = "torch"


DTYPES = {kind: Dtype(name) for kind, name in (("F32", "float32"), ("F16", "float16"), ("BF16", "bfloat16"), ("U8", "uint8"))}


def pickle_metadata(value):
    """With the names of torch.distributed's classes."""
    modules = {}
    for made in CLASSES.values():
        module = modules.setdefault(made.__module__, types.ModuleType(made.__module__))
        setattr(module, made.__name__, made)
    torch, _ = torch_names()
    for dtype in DTYPES.values():
        setattr(torch, dtype.name, dtype)
    modules["torch"] = torch
    packages = {".".join(METADATA.split(".")[:i]): None for i in range(2, 4)}
    before = {name: sys.modules.get(name) for name in (*modules, *packages)}
    sys.modules.update(modules)
    for name in packages:
        sys.modules.setdefault(name, types.ModuleType(name))
    try:
        return pickle.dumps(value, 4)
    finally:
        for name, module in before.items():
            sys.modules.pop(name, None) if module is None else sys.modules.update({name: module})


def write_distributed(folder, tensors, objects=None, change=None):
    """tensors: name -> (shape, [Box ...]); objects: name -> what is stored. `change` may alter the metadata."""
    folder.mkdir(parents=True, exist_ok=True)
    described, stored, at = {}, {}, 0
    with open(folder / "__0_0.distcp", "wb") as out:
        def put(name, content, offset):
            nonlocal at
            torch_save(folder / "item", content)
            data = (folder / "item").read_bytes()
            (folder / "item").unlink()
            out.write(data)
            stored[record("MetadataIndex", fqn=name, offset=offset, index=None)] = record(
                "_StorageInfo", relative_path="__0_0.distcp", offset=at, length=len(data))
            at += len(data)

        for name, (shape, boxes) in tensors.items():
            kind = DTYPES[boxes[0].tensor.kind]
            described[name] = record(
                "TensorStorageMetadata", size=tuple(shape), properties=record("TensorProperties", dtype=kind),
                chunks=[record("ChunkStorageMetadata", offsets=b.offset, sizes=b.tensor.array.shape) for b in boxes])
            for b in boxes:
                put(name, b.tensor, b.offset)
        for name, content in (objects or {}).items():
            described[name] = record("BytesStorageMetadata")
            put(name, content, None)
    metadata = record("Metadata", state_dict_metadata=described, planner_data=None, storage_data=stored)
    if change:
        change(metadata)
    (folder / ".metadata").write_bytes(pickle_metadata(metadata))
