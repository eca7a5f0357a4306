"""A model whose layers have states: prompts and chats go on behind states that were kept, and no answer differs."""
import json
import pathlib
import random
import subprocess
import sys

import pytest
from conftest import BUILD, Server

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "drafts"))
import served  # noqa: E402


def ids(n, seed):
    generator = random.Random(seed)
    return [generator.randrange(300) for _ in range(n)]


def cached(reply):
    return reply["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.fixture(scope="module", params=["delta", "convolution", "space"])
def servers(tmp_path_factory, request):
    """One that keeps states and rows, and one that keeps none and guesses nothing."""
    folder = tmp_path_factory.mktemp("states")
    config = {"model": served.MODELS[request.param](folder).config["model"], "server": {"port": 0, "max_context": 2048, "max_sequences": 4}}
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    # Rows in files are of no use to it.
    command = [BUILD / "retro-server", "--config", path, "--set", f"server.cache_folder={folder / 'rows'}"]
    for check in (["--check-config"], []):
        refused = subprocess.run(command + check, capture_output=True, text=True, timeout=120)
        assert refused.returncode == 1 and "has states beside its rows" in refused.stderr, refused.stderr
    pair = [Server(path, folder), Server(path, folder, "server.prefix_cache_mb=0", "server.drafts=off")]
    yield pair
    for server in pair:
        assert server.stop() == 0, server.log.read_text()


def ask(servers, prompt, **fields):
    """The answer of both, which is one; and how many tokens the first took over."""
    fields = {"temperature": 0, "max_tokens": 9, "return_token_ids": True, "ignore_eos": True, **fields}
    kept, plain = (server.complete([prompt], **fields) for server in servers)
    assert kept["choices"] == plain["choices"] and cached(plain) == 0
    return kept["choices"][0]["token_ids"], cached(kept)


def test_turns(servers):
    """The same prompt goes on from its last full block, the next turn from the end of the answer."""
    prompt = ids(300, 1)
    answer, first = ask(servers, prompt)
    assert first == 0 and ask(servers, prompt)[1] == 256
    turn = prompt + answer + ids(40, 2)
    assert ask(servers, turn)[1] == len(prompt) + len(answer) - 1


def test_parting(servers):
    """The second prompt with a common beginning finds no state there, the third does."""
    beginning = ids(140, 3)
    assert [ask(servers, beginning + ids(200, seed))[1] for seed in (4, 5, 6)] == [0, 0, 128]


def test_choices(servers):
    """Choices of one prompt are those of separate requests."""
    prompt = ids(200, 7)
    fields = {"temperature": 1, "max_tokens": 12, "n": 3, "seed": 5, "ignore_eos": True}
    kept, plain = (server.complete([prompt], **fields) for server in servers)
    assert kept["choices"] == plain["choices"] and len({choice["text"] for choice in kept["choices"]}) == 3
