"""The arithmetic of the race programs: ratios, what a stream's times say, and files that others' programs read."""
import argparse
import json
import os
import pathlib
import struct
import subprocess
import sys

import embed_race
import first_token_race
import http_race
import import_race
import million_export
import million_race
import numpy as np
import pytest
import race
import random_model
import retro_8b
import t5_race
import tower_peers
import tower_race

BUILD = pathlib.Path(__file__).resolve().parents[2] / os.environ.get("RETRO_BUILD", "build")
sys.path.append(str(BUILD.parent / "tests/http"))
# A server that keeps the chats that it is sent, one a line.
PEER = """#!{python}
import http.server, json, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, reply):
        text = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def do_GET(self):
        self.answer({{}})
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with open({asked!r}, "a") as out:
            out.write(body + "\\n")
        self.answer({{"usage": {{"prompt_tokens": 8, "prompt_tokens_details": {{"cached_tokens": 2}}}}}})
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


def test_rounds_alternate_and_are_recorded(tmp_path):
    order, path = [], tmp_path / "out.jsonl"

    def entry(name, value):
        return lambda: order.append(name) or {"rate": value, "others": 0.0}
    results = race.run_rounds("x", {"a": entry("a", 3.0), "b": entry("b", 2.0)}, 3, path)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert race.values_of(results, "a", "rate") == [3.0, 3.0, 3.0]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["round"], line["entry"]) for line in lines] == list(zip([0, 0, 1, 1, 2, 2], order))


def test_ratio_is_within_the_round_and_against_the_fastest(capsys):
    rounds = [{"a": 10, "b": 5, "c": 2}, {"a": 3, "b": 1, "c": 6}, {"a": 8, "b": 2, "c": 1}]
    results = [{k: {"rate": float(v), "others": 0.01 * v} for k, v in r.items()} for r in rounds]
    assert race.ratios_of(results, "rate", "a", ["b", "c"]) == [2.0, 0.5, 4.0]
    race.print_results("title", results, {"rate": "tok/s"}, [("a / others", "rate", "a", ["b", "c"])])
    out = capsys.readouterr().out
    assert "0.50 / 2.00 / 4.00 x" in out and "3.00 / 8.00 / 10.00 tok/s" in out
    assert "max 0.10: above 0.05, DO NOT QUOTE" in out


def test_cpu_time_of_a_process_is_its_own():
    spin = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass\nprint(flush=True)\ninput()"
    p = subprocess.Popen([sys.executable, "-c", spin], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    p.stdout.readline()
    used = race.process_seconds(p.pid)
    p.communicate(b"\n")
    assert 0.4 < used < 2.0
    assert race.process_seconds(os.getpid()) > 0


def test_stream_times():
    # Two streams, begun at 10 s; prompts are read until 12 s, four of six later texts come at 1 a second.
    s = http_race.summary(10.0, [[11.0, 13.0, 14.0], [12.0, 15.0, 16.0]], 16.0, 3)
    assert s == {"total": 1.0, "writing": 1.0, "first": 1500.0}


def test_text_that_comes_at_once_has_no_rate(capsys):
    whole, parts = http_race.summary(10.0, [[12.0]], 12.0, 4), http_race.summary(10.0, [[11.0, 12.0]], 12.0, 4)
    assert whole == {"total": 2.0, "first": 2000.0}
    results = [{"ours": parts | {"others": 0.0}, "peer": whole | {"others": 0.0}}]
    race.print_results("title", results, {"writing": "tok/s"}, [("by writing", "writing", "ours", ["peer"]), ("by total", "total", "ours", ["peer"])])
    out = capsys.readouterr().out
    assert "1.00 / 1.00 / 1.00 tok/s" in out and "by total" in out and "by writing" not in out


def test_prompts_are_new_each_round_and_the_same_for_both():
    class Options:
        prompt, streams = 5, 2
    first, again, other = (http_race.prompts(Options, seed) for seed in (1, 1, 2))
    assert first == again != other and all(len(p) == 5 for p in first)
    assert all(http_race.ORDINARY <= i < http_race.VOCABULARY for p in first for i in p)


def test_safetensors_are_laid_out_as_the_header_says(tmp_path):
    path = tmp_path / "x"
    values = np.array([1.0, -2.5, 3.14159], np.float32)
    tensors = [(d, d, (3,), lambda d=d: random_model.encode(values, d)) for d in ("F32", "BF16", "F16", "F8_E5M2")]
    random_model.write_safetensors(path, tensors, {"dim": "3"})
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header, data = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    assert (8 + size) % 64 == 0 and header.pop("__metadata__") == {"dim": "3"}
    assert header["F8_E5M2"]["data_offsets"] == [24, 27] and len(data) == 27
    assert np.array_equal(np.frombuffer(data[:12], np.float32), values)
    bf16 = np.frombuffer(data[12:18], np.uint16).astype(np.uint32) << 16
    assert np.allclose(bf16.view(np.float32), values, rtol=2**-7)
    e5m2 = np.frombuffer(data[24:27], np.uint8).astype(np.uint16) << 8
    assert np.allclose(e5m2.view(np.float16), values, rtol=2**-2)


def test_a_tensor_of_another_size_is_noticed(tmp_path):
    with pytest.raises(AssertionError):
        random_model.write_safetensors(tmp_path / "x", [("w", "F32", (2, 2), lambda: bytes(15))])


def test_tokenizer_has_an_id_for_every_row():
    vocabulary = random_model.our_tokenizer()["model"]["vocab"]
    assert sorted(vocabulary.values()) == list(range(random_model.VOCAB))


def test_texts_have_64_tokens():
    texts = embed_race.make_texts(2)
    ids = embed_race.token_ids(texts, ["[CLS]", "[SEP]", *embed_race.WORDS])
    assert ids.shape == (2, 64) and (ids[:, 0] == 0).all() and (ids[:, -1] == 1).all()
    assert len(set(texts)) == 2 and embed_race.least_cosine(ids * 1.0, ids * 2.0) == pytest.approx(1)


def test_t5_loads():
    assert t5_race.parse_load("8x128+64") == (8, 128, 64)
    for wrong in ("8x128", "0x128+64", "8x128+64 ", "axb+c"):
        with pytest.raises(argparse.ArgumentTypeError):
            t5_race.parse_load(wrong)


def test_t5_of_ours_is_measured():
    root = pathlib.Path(__file__).resolve().parents[2]
    bench = root / os.environ.get("RETRO_BUILD", "build") / "retro-bench"
    rate = t5_race.our_rate(bench, root / "tests/golden/hf/t5_v1_1", 1, (2, 9, 3))
    assert set(rate) == {*t5_race.TESTS, "others"} and rate["first"] > 0 and rate["decode"] > 0


def test_t5_peer_is_asked_by_turns(tmp_path):
    """A peer that answers with its question shows what is sent, and that one process answers all."""
    peer = tmp_path / "python"
    peer.write_text("#!/bin/sh\nwhile read -r _ a b c d; do echo \"{\\\"asked\\\": [$a, $b, $c, $d]}\"; done\n")
    peer.chmod(0o755)
    p = t5_race.Peer(peer, "config.json", "sdpa")
    assert [p.rate(n, (8, 128, 64))["asked"] for n in (1, 2)] == [[1, 8, 128, 64], [2, 8, 128, 64]]
    p.stop()


def test_towers_of_both_sides_have_one_shape():
    ours = pathlib.Path(__file__).resolve().parents[2] / "tools/shapes"
    for name, theirs in tower_peers.SHAPES.items():
        config = json.loads((ours / name / "config.json").read_text())
        keys = ("num_hidden_layers|num_layers", "hidden_size", "num_attention_heads", "intermediate_size|ffn_hidden_size",
                "patch_size|patch_dim")
        found = [next(config[k] for k in key.split("|") if k in config) for key in keys]
        assert found == [theirs[k] for k in ("layers", "width", "heads", "ffn", "patch")]
        assert tower_race.SIDES[name] % theirs["patch"] == 0


def test_towers_race_the_best_of_the_same_width(capsys):
    rates = {"retro bf16": 9.0, "retro f32": 6.0, "torch bf16": 5.0, "torch f32": 2.0, "onnx f32": 4.0}
    tower_race.print_race("x", 1, 1, [{e: {"rate": r, "others": 0.0} for e, r in rates.items()}])
    out = capsys.readouterr().out
    assert "1.80 / 1.80 / 1.80 x" in out and "1.50 / 1.50 / 1.50 x" in out


def test_the_8b_retro_has_the_published_size(tmp_path, monkeypatch):
    """The shapes sum up to the published parameters; a small one of the same make opens, packs and is mapped."""
    parameters = sum(rows * columns for _, rows, columns in retro_8b.matrices())
    assert 2 * parameters == 19_056_820_224 and round(retro_8b.token_bytes() / 1e9, 2) == 5.30
    for name, value in {"LAYERS": 12, "D": 64, "HEADS": 2, "FFN": 96, "VOCABULARY": 1024, "CROSS": range(5, 12, 3)}.items():
        monkeypatch.setattr(retro_8b, name, value)
    config = {**retro_8b.CONFIG, "num_layers": 12, "hidden_size": 64, "num_attention_heads": 2, "ffn_hidden_size": 96,
              "vocab_size": 1024, "retro_layers": [6, 9, 12]}
    (tmp_path / "words.md").write_text("some words of a text, and more words")
    (tmp_path / "int4").mkdir()
    (tmp_path / "int4/config.json").write_text(json.dumps(config))
    (tmp_path / "int4/tokenizer.model").write_bytes(retro_8b.tokenizer_of(retro_8b.words_of([tmp_path / "words.md"])))
    retro_8b.write_weights(tmp_path / "int4/model.safetensors")
    done = subprocess.run([BUILD / "retro-convert", tmp_path / "int4", tmp_path / "packed", "--to", "packed"],
                          capture_output=True, text=True)
    assert done.returncode == 0 and (tmp_path / "packed/model.packed").exists(), done.stderr
    assert sum(retro_8b.bytes_of(*m) for m in retro_8b.matrices()) < (tmp_path / "packed/model.packed").stat().st_size


def test_the_import_race_writes_a_checkpoint(tmp_path, monkeypatch):
    for name, value in {"HIDDEN": 64, "FFN": 128, "VOCABULARY": 256}.items():
        monkeypatch.setattr(import_race, name, value)
    files = import_race.write(tmp_path / "parts", 0.0005)
    assert len(files) == 2 and 4e5 < sum(f.stat().st_size for f in files) < 6e5
    (tmp_path / "given.json").write_text(json.dumps({"vocab_size": 256}))
    options = argparse.Namespace(build=BUILD)
    assert import_race.convert(options, tmp_path, []) > 0 and not (tmp_path / "out").exists()


def test_numbered_rounds_go_on_where_they_ended(tmp_path):
    path, measured = tmp_path / "out.jsonl", []
    entries = {name: lambda i, name=name: measured.append((name, i)) or {"first": 1.0 + i, "others": 0.0} for name in "ab"}
    assert race.run_numbered_rounds("x", entries, 2, path, end=0) == [] and not measured
    first = race.run_numbered_rounds("x", entries, 1, path)
    assert measured == [("a", 0), ("b", 0)]
    path.write_text("\n".join(path.read_text().splitlines()[:1]) + "\n")  # stopped within the round
    again = race.run_numbered_rounds("x", entries, 2, path)
    assert measured[2:] == [("b", 0), ("b", 1), ("a", 1)] and again[0] == first[0] and again[1]["a"]["first"] == 2.0
    race.run_numbered_rounds("y", entries, 1, path)
    assert len(measured) == 7


@pytest.fixture(scope="module")
def chat_folder(tmp_path_factory):
    from chat_model import make_chat_model
    folder = tmp_path_factory.mktemp("race") / "model"
    make_chat_model(folder)
    return folder


def test_an_earlier_process_reads_other_questions():
    a = argparse.Namespace(questions=20, subjects=3)
    now, earlier = first_token_race.questions(a, 1), first_token_race.earlier_questions(a, 1)
    assert now == first_token_race.questions(a, 1) and not any(question in now for question in earlier)


@pytest.mark.parametrize("test, entries", [("turns", ["keep", "latest"]), ("questions", ["stable", "relevance"]),
                                           ("cold", ["files", "memory"]), ("clients", ["stable", "relevance"])])
def test_first_tokens_are_raced(test, entries, chat_folder, tmp_path, monkeypatch, capsys):
    """All of it on a tiny model; the peer shows that it is sent the same prompts, with the passages."""
    asked, peer, out = tmp_path / "asked", tmp_path / "peer", tmp_path / "out.jsonl"
    peer.write_text(PEER.format(python=sys.executable, asked=str(asked)))
    peer.chmod(0o755)
    monkeypatch.setattr(first_token_race, "DOCUMENTS", 12)
    command = f"{test} --server {BUILD}/retro-server --index {BUILD}/retro-index --model {chat_folder} --peer {peer} --threads 1" \
        f" --sequences 2 --context 2048 --turns 3 --questions 6 --clients 3 --answer 4 --rounds 2 --json {out}"
    monkeypatch.setattr(sys, "argv", ["first_token_race.py", *command.split()])
    first_token_race.main()
    printed = capsys.readouterr().out
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["entry"] for line in lines] == [*entries, "peer", "peer", *entries[::-1]]
    assert all(line["first"] > 0 and 0 <= line["found"] < 1 and line["rows"] > 0 for line in lines)
    assert f"{entries[0]} / peer, first" in printed and "all rounds, in their order:" in printed

    chats = [json.loads(line)["messages"] for line in asked.read_text().splitlines()]
    assert len(chats) == 2 * (1 + (3 if test == "turns" else 6))  # each begins with a word that is not measured
    passages = [chat[-1]["content"].startswith("[") for chat in chats if chat[-1]["content"] != "w1"]
    assert all(passages)
    if test == "turns":
        assert [len(chat) for chat in chats[1:4]] == [1, 3, 5] and chats[3][:3] == chats[2][:3]

    first_token_race.main()
    assert len(out.read_text().splitlines()) == len(lines) and "of 2 rounds are complete" not in capsys.readouterr().out


def test_searches_of_an_export_are_measured_against_exact_ones(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(million_export, "WARMING", 2)
    monkeypatch.setattr(million_export, "RECALL_QUERIES", 4)
    draw = np.random.default_rng(7)
    vectors, queries = (draw.standard_normal((n, million_export.DIM)).astype(np.float32) for n in (50, 7))
    for name, rows in (("vectors", vectors), ("queries", queries)):
        rows.tofile(tmp_path / f"{name}.f32")
    (tmp_path / "texts.txt").write_text("".join(f"text {i}\n" for i in range(50)))
    (tmp_path / "queries.txt").write_text("".join(f"query {i}\n" for i in range(7)))

    def half(text, vector):
        best = np.argsort(-(vectors @ vector))
        return [*best[:5].tolist(), *best[-5:].tolist()]
    million_export.measure(tmp_path, lambda: {"vectors": half, "words": half, "hybrid": half}, 5)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    found = {line[0]: float(line[1]) for line in lines}
    assert found["recall.10"] == 0.5
    assert set(million_race.TESTS) == set(found)
    batches = list(million_export.read_batches(tmp_path))
    assert [(first, texts[-1], len(rows)) for first, texts, rows in batches] == [(0, "text 49", 50)]


def test_each_peer_of_the_million_has_its_folder():
    options = argparse.Namespace(work=pathlib.Path("w"), lance="lance", milvus="milvus", probes="9", searches=3, milvus_options="--index ivfsq8")
    commands = {name: list(map(str, command)) for name, command in million_race.peers(options).items()}
    assert commands["lancedb"][2:] == ["search", "w/export", "w/lance", "--probes", "9", "--searches", "3"]
    assert commands["milvus"][2:] == ["search", "w/export", "w/milvus", "--index", "ivfsq8", "--searches", "3"]
    options.lance = None
    assert list(million_race.peers(options)) == ["milvus"]
