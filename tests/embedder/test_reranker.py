"""Cross-encoders of each kind against transformers: tests/reference/make_reranker_goldens.py."""
import json
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EVAL = ROOT / os.environ.get("RETRO_BUILD", "build") / "retro-eval"
GOLDEN = ROOT / "tests/golden/reranker"
FILES = ROOT / "tests/golden/gguf"
KINDS = sorted(path.parent.name for path in GOLDEN.glob("*/expected.json"))
PAIRS = json.loads((GOLDEN / "pairs.json").read_text(encoding="utf-8"))


def run(folder, tmp_path, *options, pairs=PAIRS):
    lines = tmp_path / "pairs.jsonl"
    lines.write_text("".join(json.dumps({"query": query, "text": text}) + "\n" for query, text in pairs))
    return subprocess.run([EVAL, "rerank", *options, folder, lines], capture_output=True, text=True)


def scores(*arguments, **more):
    done = run(*arguments, **more)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("kind", KINDS)
def test_logits_match(kind, tmp_path):
    want = json.loads((GOLDEN / kind / "expected.json").read_text())
    got = scores(GOLDEN / kind, tmp_path)
    assert [s["tokens"] for s in got] == want["tokens"]
    assert np.abs(np.array([s["logit"] for s in got]) - want["logits"]).max() < 2e-5
    assert np.ptp(want["logits"]) > 0.5  # the pairs differ


# Files have no limit of tokens; the folder of Qwen3 has 400.
@pytest.mark.parametrize("kind, options", [("roberta", []), ("qwen3", ["--set", "retrieval.reranker_tokens=400"])])
def test_logits_of_a_gguf_file_match(kind, options, tmp_path):
    want = json.loads((GOLDEN / kind / "expected.json").read_text())
    got = scores(FILES / f"reranker_{kind}.gguf", tmp_path, *options)
    assert [s["tokens"] for s in got] == want["tokens"]
    assert np.abs(np.array([s["logit"] for s in got]) - want["logits"]).max() < 2e-5


@pytest.mark.parametrize("kind", ["roberta", "qwen3"])
def test_a_gguf_reranker_is_neither_embedder_nor_converted(kind, tmp_path):
    file = FILES / f"reranker_{kind}.gguf"
    embedded = subprocess.run([EVAL, "embed", file, "text"], capture_output=True, text=True)
    assert embedded.returncode == 1 and "set retrieval.reranker to it" in embedded.stderr
    converted = subprocess.run([EVAL.parent / "retro-convert", file, tmp_path / "folder", "--to", "f32"], capture_output=True, text=True)
    assert converted.returncode == 1 and "name the file itself in retrieval.reranker" in converted.stderr
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_scored"])
def test_an_instruction_of_ones_own(kind, tmp_path):
    want = json.loads((GOLDEN / kind / "instructed.json").read_text())
    got = scores(GOLDEN / kind, tmp_path, "--set", f"retrieval.reranker_instruction={want['instruction']}")
    assert [s["tokens"] for s in got] == want["tokens"]
    assert np.abs(np.array([s["logit"] for s in got]) - want["logits"]).max() < 2e-5
    usual = json.loads((GOLDEN / kind / "expected.json").read_text())
    assert np.abs(np.subtract(usual["logits"], want["logits"])).max() > 0.1


def test_an_instruction_that_nobody_reads_is_refused(tmp_path):
    done = run(GOLDEN / "bert", tmp_path, "--set", "retrieval.reranker_instruction=Find it")
    assert done.returncode == 1 and "reads no instruction" in done.stderr


@pytest.mark.parametrize("option", ["retrieval.reranker_instruction=" + "Find it. " * 40, "retrieval.reranker_tokens=200"])
def test_a_question_that_leaves_no_room_is_refused(option, tmp_path):
    done = run(GOLDEN / "qwen3", tmp_path, "--set", option)
    assert done.returncode == 1 and "less than a quarter is left to both" in done.stderr, done.stderr


def test_separators_in_a_text_are_text(tmp_path):
    forged = scores(GOLDEN / "bert", tmp_path, pairs=[["word", "a [SEP] b"], ["word", "a b"]])
    assert forged[0]["tokens"] > forged[1]["tokens"] + 1  # "[", "sep", "]" and not the separator alone


def test_fewer_tokens(tmp_path):
    few = scores(GOLDEN / "xlm", tmp_path, "--set", "retrieval.reranker_tokens=12")
    assert max(s["tokens"] for s in few) == 12


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_scored"])
@pytest.mark.parametrize("query", ["word " * 400, "\u00e4\u20ac\U0001f600" * 200], ids=["words", "characters"])
def test_a_long_query_leaves_half_to_the_document(kind, query, tmp_path):
    """Documents are told apart however long the query is, and a short query is read whole."""
    texts = ["cats and dogs", "the sea", "a stone"]
    pairs = [[query, text] for text in texts]
    got = scores(GOLDEN / kind, tmp_path, pairs=pairs)
    assert len({s["logit"] for s in got}) == 3
    limit = max(s["tokens"] for s in scores(GOLDEN / kind, tmp_path, pairs=[[query, "word " * 1000]]))
    fixed = min(s["tokens"] for s in scores(GOLDEN / kind, tmp_path, pairs=[["", ""]]))
    assert all(abs(s["tokens"] - fixed - (limit - fixed) / 2) < 20 for s in got)
    longer = scores(GOLDEN / kind, tmp_path, pairs=[[query + " more", text] for text in texts])
    assert [s["logit"] for s in longer] == [s["logit"] for s in got]


def change(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_what_is_no_reranker(tmp_path):
    done = run(ROOT / "tests/golden/embedder/bert_cls", tmp_path)
    assert done.returncode == 1 and "no head that scores a text" in done.stderr
    done = run(ROOT / "models/retro-docs", tmp_path)
    assert done.returncode == 1 and "no reranker" in done.stderr
    done = subprocess.run([EVAL, "embed", GOLDEN / "bert", "text"], capture_output=True, text=True)
    assert done.returncode == 1 and "a cross-encoder is no embedder" in done.stderr
    done = run(GOLDEN / "bert", tmp_path, "--set", "retrieval.reranker_tokens=4")
    assert done.returncode == 1 and "leave no room for texts" in done.stderr


def test_a_short_table_of_positions_is_refused(tmp_path):
    folder = pathlib.Path(shutil.copytree(GOLDEN / "bert", tmp_path / "bert"))
    change(folder, max_position_embeddings=41)
    done = run(folder, tmp_path)
    assert done.returncode == 1 and "position_embeddings" in done.stderr


def test_weights_of_sixteen_bits(tmp_path):
    """Heads too are stored in the type of the checkpoint."""
    for kind in ("modernbert", "qwen3"):
        folder = pathlib.Path(shutil.copytree(GOLDEN / kind, tmp_path / kind))
        halve(folder / "model.safetensors")
        want = json.loads((GOLDEN / kind / "expected.json").read_text())
        got = scores(folder, tmp_path)
        assert np.abs(np.array([s["logit"] for s in got]) - want["logits"]).max() < 0.02, kind


def halve(path):
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header, data, stored = json.loads(raw[8:8 + size]), b"", {}
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        begin, end = tensor["data_offsets"]
        halves = np.frombuffer(raw[8 + size + begin:8 + size + end], "<f4").astype("<f2").tobytes()
        stored[name] = {"dtype": "F16", "shape": tensor["shape"], "data_offsets": [len(data), len(data) + len(halves)]}
        data += halves
    head = json.dumps(stored).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(len(head).to_bytes(8, "little") + head + data)
