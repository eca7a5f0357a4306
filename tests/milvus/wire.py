"""tests/milvus/wire.py: protobuf messages as lists of (field number, value): integers and bytes."""

import struct


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7f | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number, value):
    """Of an integer, text, bytes, or a list of fields."""
    if isinstance(value, (int, bool)):
        return varint(number << 3) + varint(int(value))
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + bytes(value)


def take_varint(data, at):
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        value, shift = value | (byte & 0x7f) << shift, shift + 7
        if byte < 0x80:
            return value, at


def read(data):
    """{number: [values]} of a message."""
    at, fields = 0, {}
    while at < len(data):
        tag, at = take_varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = take_varint(data, at)
        else:
            size, at = take_varint(data, at) if kind == 2 else (8 if kind == 1 else 4, at)
            if at + size > len(data):
                raise ValueError("a field is cut off")
            value, at = data[at:at + size], at + size
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def one(fields, number, fallback=b""):
    return fields.get(number, [fallback])[-1]


def text(fields, number):
    return one(fields, number).decode()


def numbers(fields, number):
    """A repeated integer, packed or not."""
    out = []
    for value in fields.get(number, []):
        if isinstance(value, int):
            out.append(value)
            continue
        at = 0
        while at < len(value):
            item, at = take_varint(value, at)
            out.append(item - (1 << 64) if item >= 1 << 63 else item)
    return out


def floats(data):
    return struct.unpack(f"<{len(data) // 4}f", data)
