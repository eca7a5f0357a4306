"""A model with experts that is larger than the memory is packed and served there: slowly, with the same answers, and it says so."""
import re
import subprocess
import sys

import pytest
from conftest import BUILD, ROOT

sys.path.insert(0, str(ROOT / "tests"))
import large_experts  # noqa: E402
from small_machine import small_machine  # noqa: E402

PROMPT = [317, *(7 * i % 300 for i in range(40))]
MEMORY = 300 << 20
OPTIONS = ["server.max_sequences=1", "server.max_context=256", "server.max_step_tokens=64", "server.prefix_cache_mb=0", "retrieval.collection=",
           "retrieval.embedder="]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("experts") / "model"
    assert large_experts.make(folder) > 1.2 * MEMORY
    return folder


def answer(server):
    return server.complete([PROMPT], max_tokens=24, temperature=0, ignore_eos=True, logprobs=3)["choices"][0]


def expert_bytes(server, name):
    text = server.request("GET", "/metrics").body.decode()
    return float(re.search(rf"^retro_expert_{name}\{{.*\}} (\S+)$", text, re.M)[1])


def refuse(folder):
    """The words of a server that does not start."""
    options = [word for option in (f"model.path={folder}", "server.port=0", *OPTIONS) for word in ("--set", option)]
    done = subprocess.run([BUILD / "retro-server", *options], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    return done.stderr


def advised_command(words):
    """The arguments of retro-convert in the words of a refusal."""
    return re.search(r"Pack it once \(the disk needs 4\d\d\.\d MB\), and set model.path to the new folder: retro-convert (.*)$", words, re.M)[1].split()


def test_a_model_larger_than_memory(start, model):
    packed = model.with_name("model-packed")
    large = start(f"model.path={model}", *OPTIONS)
    expected = answer(large)
    assert expert_bytes(large, "mapped_bytes") == expert_bytes(large, "held_bytes") == expert_bytes(large, "read_bytes_total") == 0
    with small_machine(MEMORY):
        words = refuse(model)
        command = advised_command(words)
        done = subprocess.run([BUILD / "retro-convert", *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        small = start(f"model.path={packed}", *OPTIONS)
    assert re.search(r"not enough memory: weights 4\d\d\.\d MB, cache ", words), words
    assert command == [str(model), str(packed), "--to", "packed"]
    log = small.log.read_text()
    assert re.search(r"memory: weights [\d.]+ MB, experts 402.7 MB mapped, cache ", log), log
    assert re.search(r"experts are 402.7 MB mapped, of which memory holds [\d.]+ MB: a token uses 50.3 MB of them, and reads [\d.]+ MB from disk", log)
    assert answer(small) == expected
    assert answer(small) == expected
    assert expert_bytes(small, "read_bytes_total") > 50e6  # from a disk: where the folder is in memory (tmpfs) there is no such machine
    assert round(expert_bytes(small, "mapped_bytes") / 1e6, 1) == 402.7
    held = re.search(r"of which memory holds ([\d.]+) MB", log)
    assert round(expert_bytes(small, "held_bytes") / 1e6, 1) == float(held[1])
    with small_machine(60 << 20):
        words = refuse(packed)
    assert re.search(r"not enough memory: weights [\d.]+ MB, experts 402.7 MB mapped, ", words), words


def test_a_program_that_does_not_measure_is_not_killed(model):
    """retro-bench opens a model without adding up its parts. No matrix of this one is large."""
    with small_machine(MEMORY):
        done = subprocess.run([BUILD / "retro-bench", "load", model], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done
    assert "cpu: no memory for a [" in done.stderr, done.stderr
