"""retro-bench: every command on a tiny shape prints the figures that docs/benchmarks.md names, as well-formed JSON lines
or as a table, and refuses what it does not understand. Speeds are not judged: a test machine is never quiet."""
import json
import math
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
DEPS = pathlib.Path(os.environ.get("RETRO_DEPS", pathlib.Path.home() / ".cache/retro-server"))
CASE = ROOT / "tests/golden/retro/case_a"  # 6 layers of 32, one reads; chunks of 8 tokens
T5 = ROOT / "tests/golden/hf/t5_v1_1"
LLAVA = ROOT / "tests/golden/vision/llava_a"
SHIPPED = ROOT / "models/retro-docs"

ROOFLINE = {"read_gbps", "fma_gflops", "bf16_dot_gflops", "int8_dot_gops"}
DECODE = {"decode", "decode_gbps", "decode_share_of_read"}
PREFILL = {"prefill", "prefill_gflops", "prefill_share_of_peak"}
BATCH = {f"batch.{name}" for name in DECODE | PREFILL}
RETRIEVAL = {f"retrieval.{name}" for name in ("chunks", "off", "on", "loss", "step_off", "step_on", "embed", "search", "encode")}
LOAD = {f"load.{name}" for name in ("open", "first_token", "ms_per_gb", "gbps", "share_of_read")}
INDEX = {f"index.{name}" for name in ("build", "rate", "disk", "memory", "search", "search.p99", "recall.1", "recall")}
QUOTES = {f"quotes.{name}" for name in ("build", "opening", "inside", "outside")}
SEARCH = {kind: {f"search.{kind}.{queries}" for queries in (1, 8, 64)} for kind in ("flat", "ivf")}
CACHE = {"decode_f16", "decode_int8", "decode_int8_of_f16"}
SEQ2SEQ = {f"seq2seq.{name}" for name in ("first", "encode", "decode")}
TOWER = {"tower.pictures", "tower.first"}
PEERS = {"pp64", "pp512", "tg64", "batch16.pp", "batch16.tg"}
DEVICE = {"load", "row_weights", "decode_bytes", "decode.1", "decode.8", "decode.64", "prefill.512", "prefill.2048", "step.plain",
          "step.closing"}
# Differences of two measurements: on a busy machine they may come out below zero.
SIGNED = {"retrieval.loss", "retrieval.encode", "seq2seq.encode"}


def bench(*arguments):
    return subprocess.run([BUILD / "retro-bench", *map(str, arguments)], capture_output=True, text=True, timeout=300)


def no_constants(name):
    raise ValueError(f"{name} is not JSON")


def figures(*arguments):
    """{name: its object}, of a run that must succeed and print nothing but good figures."""
    done = bench(*arguments)
    assert done.returncode == 0, done.stderr
    found = {}
    for line in done.stdout.splitlines():
        figure = json.loads(line, parse_constant=no_constants)
        assert figure["name"] not in found or "roofline" in arguments, f"{line}: a second time"
        assert math.isfinite(figure["value"]) and (figure["value"] > 0 or figure["name"] in SIGNED), line
        assert isinstance(figure["unit"], str)
        if "low" in figure:
            assert figure["low"] <= figure["value"] <= figure["high"], line
        found[figure["name"]] = figure
    return found


def values(found):
    return {name: figure["value"] for name, figure in found.items()}


# Weights of CASE, counted by hand: QKV, projection and MLP of each layer, without cross attention as no neighbours are
# read; the output matrix.
LAYERS, OUTPUT = 6 * (4 * 32 * 32 + 2 * 32 * 128), 256 * 32


def check_names(found, names):
    assert set(found) == names
    page = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    for name in names:
        assert f"`{name.removeprefix('batch.')}`" in page, f"docs/benchmarks.md does not have {name}"


@pytest.mark.parametrize(
    "dtype, bytes_a_weight, sequences, prompt", [("f32", 4, 1, 40), ("int8", 34 / 32, 3, 1), ("int4", 20 / 32, 2, 7)]
)
def test_figures_of_a_model(dtype, bytes_a_weight, sequences, prompt):
    """A token reads every weight once for all sequences; a prompt's last row alone is multiplied by the output matrix."""
    found = figures("batch", "--sequences", sequences, "--prompt", prompt, "--tokens", 4, "--dtype", dtype, "--json", CASE)
    check_names(found, BATCH)
    assert all((f["model"], f["dtype"]) == (str(CASE), dtype) for f in found.values())
    of = values(found)
    read = 1e-9 * of["batch.decode"] / sequences * bytes_a_weight * (LAYERS + OUTPUT)
    assert of["batch.decode_gbps"] == pytest.approx(read, rel=1e-4)
    operations = 2e-9 * of["batch.prefill"] * (LAYERS + OUTPUT / prompt)
    assert of["batch.prefill_gflops"] == pytest.approx(operations, rel=1e-4)


@pytest.mark.parametrize(
    "names, arguments",
    [
        (ROOFLINE, ("roofline", "--threads", 1)),
        (DECODE, ("decode", "--tokens", 4, "--model", "s-q8_0", CASE)),
        (PREFILL, ("prefill", "--prompt", 9, "--threads", 1, CASE)),
        (CACHE, ("cache", "--prompt", 700, "--tokens", 3, "--rounds", 2, "--threads", 1, ROOT / "tests/golden/hf/llama")),
        (RETRIEVAL, ("retrieval", "--chunks", 300, "--tokens", 8, "--sequences", 4, "--threads", 1, CASE)),
        (SEQ2SEQ, ("seq2seq", "--sequences", 3, "--prompt", 200, "--tokens", 5, "--threads", 1, T5)),
        (TOWER, ("tower", "--sequences", 3, "--pixels", 28, "--prompt", 5, "--threads", 1, LLAVA)),
        (LOAD, ("load", SHIPPED)),
        (QUOTES, ("quotes", ROOT / "models/retro-docs", "--prompt", 20, "--rounds", 2)),
        (SEARCH["flat"], ("search", "--vectors", 1000, "--dims", 16, "--k", 3, "--threads", 1)),
        (SEARCH["ivf"], ("search", "--vectors", 3000, "--dims", 7, "--index", "ivf", "--device", "cpu", "--threads", 1)),
        (INDEX, ("index", "--vectors", 20000, "--dims", 64, "--index", "ivf", "--threads", 1)),
        (INDEX, ("index", "--vectors", 20000, "--dims", 64, "--index", "SQ8", "--threads", 1)),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_figures(names, arguments):
    found = figures(*arguments, "--json")
    check_names(found, names)
    threads = {figure["threads"] for figure in found.values()}
    assert threads == ({1} if "--threads" in arguments else {len(os.sched_getaffinity(0))})
    assert all(figure.get("dtype") != "bf16" for figure in found.values()) or "s-q8_0" not in arguments


def test_seq2seq_needs_an_encoder():
    done = bench("seq2seq", CASE)
    assert done.returncode == 1 and "the model has no encoder" in done.stderr


@pytest.mark.parametrize("folder, pixels, words", [(CASE, 28, "no vision tower"), (LLAVA, 27, "the model reads 28 x 28")])
def test_tower_needs_a_tower(folder, pixels, words):
    done = bench("tower", "--pixels", pixels, folder)
    assert done.returncode == 1 and words in done.stderr


@pytest.mark.parametrize("model, threads, dtype", [("s-f16", 1, "f16"), ("s-q4_0", 2, "int4")])
def test_peers(model, threads, dtype):
    found = figures("peers", "--model", model, "--threads", threads)
    assert set(found) == PEERS
    for figure in found.values():
        assert (figure["model"], figure["dtype"], figure["threads"], figure["unit"]) == ("s", dtype, threads, "tok/s")


def test_turns_take_what_is_asked():
    done = subprocess.run([BUILD / "retro-bench", "turns", "--model", "s-int8", "--threads", "1"], input="pp64\nread\nfoo\npp64\n",
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and 'no figure "foo"' in done.stderr
    assert [json.loads(line)["name"] for line in done.stdout.splitlines()] == ["token_bytes", "pp64", "read"]


def test_several_commands_share_a_line():
    found = figures("linear", "embed", "--rows", 3, "--in", 64, "--out", 48, "--sequences", 2, "--dtype", "f16", "--json")
    assert set(found) == {"linear_f16_rows3_gbps", "linear_f16_rows3_gflops", "embed"}
    found |= figures("linear", "--rows", 7, "--in", 512, "--out", 48, "--dtype", "Q4_K", "--json")
    assert {"linear_q4_k_rows7_gbps", "linear_q4_k_rows7_gflops"} < set(found)
    assert found["embed"]["dtype"] == "f16" and "`embed`" in (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")


def test_device_without_a_gpu(tmp_path):
    config = json.loads((CASE / "config.json").read_text())
    config |= {"position_embedding_type": "rope", "num_layers": 1, "retro_layers": [1], "retro_chunk_length": 64,
               "retro_retrieved_length": 128}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = figures("device", "--device", "cpu", tmp_path)
    assert set(found) == DEVICE and all(figure["model"] == tmp_path.name for figure in found.values())
    found = figures("device", "--device", "cpu", "--dtype", "int8", tmp_path)
    assert set(found) == DEVICE - {"decode.64", "prefill.512", "prefill.2048"}
    assert all(figure["model"] == tmp_path.name + "-int8" for figure in found.values())


def test_retrieval_is_live():
    """A chunk of this model takes a fraction of the time that its embedding does, so what is lost is nearly all."""
    found = values(figures("retrieval", "--chunks", 1000, "--tokens", 8, "--json", CASE))
    assert set(found) == RETRIEVAL and found["retrieval.chunks"] == 1000
    assert found["retrieval.on"] < found["retrieval.off"] and found["retrieval.loss"] > 30
    chunk = 1e3 * 8 / found["retrieval.on"]
    assert found["retrieval.embed"] + found["retrieval.search"] < 3 * chunk


def test_a_given_collection(tmp_path):
    subprocess.run([BUILD / "retro-index", "build", "--out", tmp_path / "c", "--set", f"model.path={SHIPPED}", "--set",
                    f"retrieval.embedder={DEPS / 'minilm'}", ROOT / "docs/indexing.md"], check=True, timeout=300)
    found = figures("retrieval", "--collection", tmp_path / "c", "--tokens", 64, "--json", SHIPPED)
    assert set(found) == RETRIEVAL and "given" in found["retrieval.chunks"]["unit"]
    done = bench("retrieval", "--collection", tmp_path / "c", CASE)
    assert done.returncode == 1 and "retro-bench retrieval:" in done.stderr


def test_a_packed_model_loads_by_mapping(tmp_path):
    subprocess.run([BUILD / "retro-convert", SHIPPED, tmp_path / "packed", "--to", "packed"], check=True, timeout=300)
    found = values(figures("load", "--json", tmp_path / "packed"))
    assert found["load.open"] <= found["load.first_token"]
    assert found["load.ms_per_gb"] == pytest.approx(1e3 / found["load.gbps"], rel=1e-4)


def test_a_table_for_readers():
    done = bench("roofline", "prefill", "--threads", "1", "--model", "s", "--prompt", "2")
    assert done.returncode == 0, done.stderr
    for text in ("this machine, 1 thread, ", "read_gbps", "GB/s", "s bf16, 12 layers of 768", "prefill_share_of_peak"):
        assert text in done.stdout
    assert "{" not in done.stdout


def test_a_model_that_reads_nothing_is_refused(tmp_path):
    config = json.loads((CASE / "config.json").read_text()) | {"architecture": "gpt"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = bench("retrieval", tmp_path)
    assert done.returncode == 1 and "a model that reads neighbours" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [(), ("nothing",), ("decode", "--rows", "3"), ("decode", "--threads", "0"), ("decode", "--threads", "2x"), ("decode", "--tokens"),
     ("prefill", "--dtype", "int7"), ("decode", "--dtype", "fp8"), ("batch", "a", "b"), ("batch", "--model", "x-bf16"), ("roofline", "a"), ("load",),
     ("decode", "embed", "a"), ("roofline", "embed", "--model", "s"), ("peers", "--model", "m-q5_0"), ("peers", "--json"),
     ("linear", "--in", "-1"), ("device", "--device"), ("retrieval", "--prompt", "4"),
     ("decode", "--rounds", "33")],
    ids=" ".join,
)
def test_bad_options_are_refused_before_anything_runs(arguments):
    done = bench(*arguments)
    assert done.returncode == 1 and done.stdout == ""
    assert "usage: retro-bench" in done.stderr


def test_help_names_every_option():
    done = bench("--help")
    assert done.returncode == 0 and done.stderr == ""
    commands = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")]
    assert {"roofline", "decode", "prefill", "batch", "embed", "retrieval", "search", "load", "peers"} <= set(commands)
    for command in commands:
        done = bench(command, "--help")
        assert done.returncode == 0 and done.stdout.startswith(f"usage: retro-bench {command}") and "  --" in done.stdout


@pytest.mark.parametrize(
    "words, arguments",
    [("config.json", ("decode", "no/such/folder")), ("config.json", ("load", "no/such/folder")),
     ("collection", ("retrieval", "--collection", "no/such/collection", CASE)),
     ("random chunks", ("retrieval", "--collection", "a", "--chunks", 3, CASE)),
     ("at most", ("embed", "--sequences", 5000)),
     ("flat or ivf", ("search", "--index", "lists")), ("no device", ("search", "--vectors", 9, "--device", "gpu")),
     ("NoSuchKind", ("index", "--vectors", 9, "--index", "NoSuchKind")),
     ("int8", ("embed", "--dtype", "int8")), ("at most", ("linear", "--in", 1 << 20)),
     ("a multiple of 256", ("linear", "--in", 288, "--dtype", "q6_k")), ("at most", ("retrieval", "--sequences", 65))],
)
def test_what_cannot_run_says_why(words, arguments):
    done = bench(*arguments)
    assert done.returncode == 1 and done.stderr.startswith(f"retro-bench {arguments[0]}: ") and words in done.stderr
