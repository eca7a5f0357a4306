"""Files that are there whole or not at all: written beside their place, synced, renamed."""

import json
import os
from pathlib import Path


def replace_file(path, write):
    """write(temporary path) fills it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    write(temporary)
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_text(path, text):
    replace_file(path, lambda p: p.write_text(text, encoding="utf-8"))


def write_json(path, value):
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def read_json(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))
