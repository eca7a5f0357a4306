#!/usr/bin/env python3
"""Turn the matrices of a GGUF file into Q4_K: super-blocks of 256 weights, 4.5 bits each.

    q4_k.py FROM.gguf TO.gguf

The file's matrices must be F32, F16 or BF16, as `retro-convert FOLDER OUT --to gguf` writes them of such a folder. All of
them become Q4_K, the words and the output matrix too; vectors stay. One piece of a matrix is in memory at a time. Needs
NumPy.
"""
import argparse
import struct

import numpy as np

F32, F16, Q4_K, BF16 = 0, 1, 12, 30
ITEM_BYTES = {F32: 4, F16: 2, BF16: 2}
BLOCK, BLOCK_BYTES = 256, 144
ALIGNMENT = 32
ALL_Q4_K = 14  # general.file_type
PIECE = 1 << 22  # numbers
SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9


class Reader:
    """The head of a GGUF file: `pairs` are its keys with their values as bytes, `tensors` (name, dimensions, type,
    offset), `data` where the weights begin."""

    def __init__(self, path):
        self.file = open(path, "rb")
        magic, version, tensors, pairs = struct.unpack("<4sIQQ", self.take(24))
        if magic != b"GGUF" or version != 3:
            raise SystemExit(f"{path} is no GGUF file of version 3")
        self.pairs = [self.pair() for _ in range(pairs)]
        self.tensors = [self.tensor() for _ in range(tensors)]
        self.data = -(-self.file.tell() // ALIGNMENT) * ALIGNMENT

    def take(self, n):
        taken = self.file.read(n)
        if len(taken) != n:
            raise SystemExit(f"{self.file.name} ends early")
        return taken

    def number(self, form):
        return struct.unpack("<" + form, self.take(struct.calcsize(form)))[0]

    def string(self):
        return self.take(self.number("Q"))

    def value(self, kind):
        """The bytes of a value."""
        if kind == STRING:
            text = self.string()
            return struct.pack("<Q", len(text)) + text
        if kind == ARRAY:
            inner, count = self.number("I"), self.number("Q")
            return struct.pack("<IQ", inner, count) + b"".join(self.value(inner) for _ in range(count))
        return self.take(SCALARS[kind])

    def pair(self):
        key, kind = self.string(), self.number("I")
        if key == b"general.alignment":
            raise SystemExit(f"{self.file.name} has an alignment of its own")
        value = self.value(kind)
        return key, kind, struct.pack("<I", ALL_Q4_K) if key == b"general.file_type" else value

    def tensor(self):
        name, count = self.string(), self.number("I")
        dimensions = [self.number("Q") for _ in range(count)]
        return name, dimensions, self.number("I"), self.number("Q")

    def numbers(self, kind, offset, count):
        """f32 numbers from an offset in the weights."""
        self.file.seek(self.data + offset)
        raw = self.take(count * ITEM_BYTES[kind])
        if kind == BF16:
            return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        return np.frombuffer(raw, {F32: np.float32, F16: np.float16}[kind]).astype(np.float32)


def packed_scales(scales, least):
    """Eight scales and eight minima of six bits each as twelve bytes."""
    low = scales[:, :4] | (scales[:, 4:] >> 4) << 6
    middle = least[:, :4] | (least[:, 4:] >> 4) << 6
    high = (scales[:, 4:] & 15) | (least[:, 4:] & 15) << 4
    return np.concatenate([low, middle, high], 1).astype(np.uint8)


def quantised(values):
    """f32 numbers, a multiple of 256 of them, as super-blocks: each 32 numbers become 16 steps from their least, or from
    zero where that is less, to their largest."""
    blocks = values.reshape(-1, 8, 32)
    least = np.maximum(0, -blocks.min(2))
    steps = (np.maximum(0, blocks.max(2)) + least) / 15
    halves = [(x.max(1, keepdims=True) / 63).astype(np.float16) for x in (steps, least)]
    wide = [np.where(h == 0, 1, h.astype(np.float32)) for h in halves]
    whole = [np.clip(np.rint(x / w), 0, 63).astype(np.uint32) for x, w in zip((steps, least), wide)]
    step = (whole[0] * halves[0].astype(np.float32))[:, :, None]
    shifted = blocks + (whole[1] * halves[1].astype(np.float32))[:, :, None]
    levels = np.clip(np.rint(shifted / np.where(step == 0, 1, step)), 0, 15).astype(np.uint8)
    pairs = levels.reshape(-1, 4, 2, 32)
    nibbles = (pairs[:, :, 0] | pairs[:, :, 1] << 4).reshape(len(blocks), 128)
    heads = [h.view(np.uint8).reshape(len(blocks), 2) for h in halves]
    return np.concatenate([*heads, packed_scales(*whole), nibbles], 1).tobytes()


def is_matrix(name, dimensions, kind):
    if len(dimensions) < 2:
        return False
    if kind not in ITEM_BYTES or dimensions[0] % BLOCK:
        raise SystemExit(f"{name.decode()} has type {kind} and rows of {dimensions[0]}: they must be F32, F16 or BF16, and "
                         f"a multiple of {BLOCK} long")
    return True


def placed(tensors):
    """The tensors as they will be: (name, dimensions, type, offset, bytes)."""
    at = 0
    for name, dimensions, kind, _ in tensors:
        count = int(np.prod(dimensions))
        small = is_matrix(name, dimensions, kind)
        size = count // BLOCK * BLOCK_BYTES if small else count * ITEM_BYTES[kind]
        yield name, dimensions, Q4_K if small else kind, at, size
        at += -(-size // ALIGNMENT) * ALIGNMENT


def head_of(reader, tensors):
    text = [struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(reader.pairs))]
    for key, kind, value in reader.pairs:
        text += [struct.pack("<Q", len(key)), key, struct.pack("<I", kind), value]
    for name, dimensions, kind, offset, _ in tensors:
        text += [struct.pack("<Q", len(name)), name, struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, kind, offset)]
    joined = b"".join(text)
    return joined + bytes(-len(joined) % ALIGNMENT)


def write_tensor(reader, out, source, target):
    _, dimensions, kind, offset = source
    count = int(np.prod(dimensions))
    for first in range(0, count, PIECE):
        values = reader.numbers(kind, offset + first * ITEM_BYTES[kind], min(PIECE, count - first))
        out.write(quantised(values) if target[2] == Q4_K else values.tobytes())
    out.write(bytes(-target[4] % ALIGNMENT))


def convert(source, target):
    reader = Reader(source)
    for name, dimensions, kind, _ in reader.tensors:
        if len(dimensions) < 2 and kind != F32:
            raise SystemExit(f"{name.decode()} is a vector of type {kind}, not F32")
    tensors = list(placed(reader.tensors))
    with open(target, "xb") as out:
        out.write(head_of(reader, tensors))
        for before, after in zip(reader.tensors, tensors):
            write_tensor(reader, out, before, after)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("source")
    p.add_argument("target")
    a = p.parse_args()
    convert(a.source, a.target)


if __name__ == "__main__":
    main()
