"""Folders as they are downloaded, served in place: what ends a text, how tokens are drawn, what is missing."""
import json
import pathlib
import subprocess
import sys

import pytest
from conftest import BUILD, Server

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import downloaded  # noqa: E402

GREEDY = {"do_sample": False}


@pytest.fixture
def serve(tmp_path):
    """Serves a new folder with this generation_config.json."""
    servers = []

    def start(generation, *sets):
        folder = tmp_path / f"model-{len(servers)}"
        downloaded.write_folder(folder, generation)
        config = tmp_path / "retro.json"
        config.write_text(json.dumps({"model": {"path": str(folder)}, "server": {"port": 0}}))
        servers.append(Server(config, tmp_path, *sets))
        return servers[-1]

    yield start
    for server in servers:
        assert server.stop() == 0, server.log.read_text()


def written(server, **fields):
    choice = server.complete("a b", max_tokens=12, **fields)["choices"][0]
    return choice["text"], choice["finish_reason"]


def piece_ids(server):
    """The ids of a greedy answer, by the names of its tokens."""
    choice = server.complete("a b", max_tokens=12, logprobs=0, ignore_eos=True)["choices"][0]
    vocab = {piece.replace("\u0120", " "): i for piece, i in downloaded.tokenizer()["model"]["vocab"].items()}
    return [vocab.get(token) for token in choice["logprobs"]["tokens"]]


def test_every_end_ends(serve):
    ids = piece_ids(serve(GREEDY))
    place = next(i for i, piece in enumerate(ids) if i > 0 and piece is not None and piece not in ids[:i])
    for ends in ([downloaded.VOCAB - 1, ids[place]], ids[place], [ids[place], 5000]):
        server = serve({**GREEDY, "eos_token_id": ends})
        reply = server.complete("a b", max_tokens=12)
        assert reply["choices"][0]["finish_reason"] == "stop"
        assert reply["usage"]["completion_tokens"] == place + 1
        assert written(server, ignore_eos=True)[1] == "length"


def test_sampling_defaults(serve):
    server = serve(GREEDY)
    text = written(server)
    assert text == written(server, seed=1) == written(server, temperature=0)
    drawn = written(server, temperature=1.5, seed=1)
    assert drawn != text
    assert "requests get temperature 0 from generation_config.json" in server.log.read_text()

    narrow = serve({"temperature": 1.5, "top_k": 1})
    params = narrow.request("GET", "/props").json()["default_generation_settings"]["params"]
    assert (params["temperature"], params["top_k"], params["top_p"]) == (1.5, 1, 1)
    assert written(narrow, seed=1) == text
    assert written(narrow, seed=1, top_k=0) == drawn

    ignoring = serve({"temperature": 1.5, "top_k": 1}, "model.sampling_defaults=false")
    assert written(ignoring, seed=1, temperature=1.5) == drawn


def run(*arguments):
    return subprocess.run([BUILD / "retro-server", *arguments], capture_output=True, text=True)


def test_config_shows_defaults(tmp_path):
    downloaded.write_folder(tmp_path / "model")
    shown = run("--set", f"model.path={tmp_path}/model", "--print-config")
    assert shown.returncode == 0
    assert json.loads(shown.stdout)["model"]["sampling_defaults"] is True
    assert f"temperature 0.6, top_p 0.9, from {tmp_path}/model/generation_config.json" in shown.stderr
    off = run("--set", f"model.path={tmp_path}/model", "--set", "model.sampling_defaults=false", "--print-config")
    assert off.returncode == 0 and off.stderr == ""


@pytest.mark.parametrize("missing", ["config.json", "model-00002-of-00002.safetensors", "tokenizer.json"])
def test_missing_file_is_named(tmp_path, missing):
    downloaded.write_folder(tmp_path / "model")
    (tmp_path / "model" / missing).unlink()
    done = run("--set", f"model.path={tmp_path}/model", "--set", "server.port=0")
    assert done.returncode != 0 and missing in done.stderr, done.stderr


@pytest.mark.parametrize("text, words", [('{"eos_token_id": "x"}', "eos_token_id"), ("{", "generation_config.json:1")])
def test_malformed_generation_config(tmp_path, text, words):
    downloaded.write_folder(tmp_path / "model")
    (tmp_path / "model/generation_config.json").write_text(text)
    for option in ("--check-config", "--print-config"):
        done = run("--set", f"model.path={tmp_path}/model", option)
        assert done.returncode != 0 and words in done.stderr and "generation_config.json" in done.stderr
