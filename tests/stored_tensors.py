"""Safetensors files of other tensors: names and choices are all that changes."""
import json
import struct


def read_file(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    return json.loads(raw[8:8 + size]), raw[8 + size:]


def write_file(path, header, data):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def rename_tensors(folder, rename):
    """The folder's tensors under other names."""
    path = folder / "model.safetensors"
    header, data = read_file(path)
    write_file(path, {name if name == "__metadata__" else rename(name): value for name, value in header.items()}, data)


def keep_tensors(path, keeps):
    header, data = read_file(path)
    kept, bytes_kept = {}, b""
    for name, value in header.items():
        if name != "__metadata__" and keeps(name):
            first, end = value["data_offsets"]
            kept[name] = value | {"data_offsets": [len(bytes_kept), len(bytes_kept) + end - first]}
            bytes_kept += data[first:end]
    write_file(path, kept, bytes_kept)


def turn_tensors(path, turns):
    """Tensors of f32 [n, rows, columns] as [n, columns, rows]."""
    header, data = read_file(path)
    data = bytearray(data)
    for name, value in header.items():
        if name == "__metadata__" or not turns(name):
            continue
        n, rows, columns = value["shape"]
        first, end = value["data_offsets"]
        old = memoryview(bytes(data[first:end])).cast("f", (n, rows, columns)).tolist()
        new = [old[i][j][k] for i in range(n) for k in range(columns) for j in range(rows)]
        data[first:end] = struct.pack(f"<{len(new)}f", *new)
        value["shape"] = [n, columns, rows]
    write_file(path, header, bytes(data))
