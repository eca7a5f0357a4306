#!/usr/bin/env python3
"""Writes tests/unit/kquants_reference.h: a super-block of Q4_K, Q5_K and Q6_K each, with every byte another, and what the
package `gguf` (pip install gguf) widens it to. Not run by tests."""
import pathlib

import numpy as np
from gguf import GGMLQuantizationType, quants

TYPES = {"Q4_K": 144, "Q5_K": 176, "Q6_K": 210}


def super_block(name, size):
    """Bytes in a mixed order; the f16 numbers d and dmin are 0.0123 and 0.0456."""
    raw = (np.arange(size, dtype=np.uint32) * 157 + 41).astype(np.uint8)
    halves = np.array([0.0123, 0.0456], np.float16).view(np.uint8)
    if name == "Q6_K":
        raw[208:210] = halves[:2]
    else:
        raw[0:4] = halves
    return raw


def lines(values, text, per_line):
    words = [text(value) for value in values]
    return ",\n".join("     " + ", ".join(words[i : i + per_line]) for i in range(0, len(words), per_line))


out = ["/* tests/unit/kquants_reference.h: super-blocks and what they widen to; written by make_kquants_reference.py. */", "#pragma once", "", "/* clang-format off */"]
out += ["static const struct {", "    enum dtype dtype;", "    uint8_t raw[210];", "    float wide[256];",
        "} kquants_reference[] = {"]
for name, size in TYPES.items():
    raw = super_block(name, size)
    wide = quants.dequantize(raw.reshape(1, -1), GGMLQuantizationType[name]).reshape(-1)
    out += [f"    {{DTYPE_{name},", "     {" + lines(raw, str, 24).lstrip() + "},",
            "     {" + lines(wide, lambda v: f"{float(v).hex()}f", 6).lstrip() + "}},"]
out += ["};", "/* clang-format on */", ""]
pathlib.Path(__file__).with_name("kquants_reference.h").write_text("\n".join(out))
