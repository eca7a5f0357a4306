"""A model of the published options with eight heads, imported from eight ranks of training, and served by 1, 2, 4 and 8: the
logits are those that NumPy computes, and processes under mpirun compute bit by bit what threads do."""
import json
import pathlib
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/import"), str(ROOT / "tests/tp")]
import test_import_sizes as sizes  # noqa: E402
from checkpoints import Tensor  # noqa: E402
from forward import Retro, write_cases  # noqa: E402
from test_import_ranks import SMALL, convert, write_legacy  # noqa: E402
from test_ranks import needs_mpi, parity  # noqa: E402

LAYERS, HIDDEN, FFN, HEADS, VOCABULARY, CHUNK = 12, 64, 192, 8, 256, 8
CONFIG = {"num_layers": LAYERS, "hidden_size": HIDDEN, "num_attention_heads": HEADS, "kv_channels": HIDDEN // HEADS,
          "ffn_hidden_size": FFN, "layernorm_epsilon": 1e-5, "max_position_embeddings": 64, "rotary_percent": 0.5,
          "position_embedding_type": "rope", "activation": "swiglu", "layernorm_zero_centered_gamma": True,
          "tie_word_embeddings": False, "add_bias_linear": False, "retro_layers": [9, 12]}


def random_tensors(random):
    shapes, _ = sizes.shapes(LAYERS, HIDDEN, FFN)
    found = {}
    for name, shape in shapes.items():
        shape = (VOCABULARY if shape[0] == sizes.VOCABULARY else shape[0], *shape[1:])
        found[name] = Tensor("F32", (random.standard_normal(shape) * 0.1).astype("<f4"))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The imported folder, with the cases that NumPy computed of the tensors."""
    place, random = tmp_path_factory.mktemp("eight"), np.random.default_rng(3)
    tensors = random_tensors(random)
    parts = write_legacy(place / "parts", CONFIG, tensors, 8)
    given = place / "given.json"
    given.write_text(json.dumps({"vocab_size": VOCABULARY, **SMALL}))
    done = convert("--from", parts, "--out", place / "out", "--config", given, "--gate", 1)
    assert done.returncode == 0, done.stderr
    cases, model = {}, Retro(tensors, LAYERS, HEADS, [8, 11], CHUNK, 1)
    for n in (24, 13):
        tokens = random.integers(0, VOCABULARY, n, "i4")
        near = random.integers(0, VOCABULARY, (-(-n // CHUNK), 2, 2 * CHUNK), "i4")
        cases.update({f"n{n}.tokens": tokens[None], f"n{n}.neighbors": near[None],
                      f"n{n}.logits": model.logits(tokens, near)[None].astype("<f4")})
    write_cases(place / "out/cases.safetensors", cases)
    return place / "out"


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_ranks_as_threads(folder, ranks):
    done = parity("threads", ranks, 1, folder)
    assert done.returncode == 0 and done.stdout.endswith("2 passed, 0 failed\n"), done.stdout + done.stderr


@needs_mpi
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_ranks_under_mpirun(folder, ranks):
    done = parity("mpi", ranks, 1, folder)
    assert done.returncode == 0 and done.stdout.endswith("2 passed, 0 failed\n"), done.stdout + done.stderr
    assert done.stdout == parity("threads", ranks, 1, folder).stdout, "threads add in the same order"
