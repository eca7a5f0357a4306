"""The program that counts differing bytes: it sees each of them, and leaves out only what may differ."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import differences  # noqa: E402


def reply(text="a b", **more):
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "completion_tokens_details": {"drafted_tokens": 5}}
    return {"status": 200, "id": "x", "created": 1, "choices": [{"index": 0, "text": text}], "usage": usage | more}


def test_equal_answers_have_other_names_and_counts():
    other = reply(completion_tokens_details={"drafted_tokens": 0}) | {"id": "y", "created": 2}
    assert differences.differing("greedy", [reply(), other])[0] == 0


@pytest.mark.parametrize("other, wrong", [(reply("a c"), 1), (reply(prompt_tokens=4), 1), (reply("a b c"), 8),
                                          (reply() | {"status": 400}, 1)])
def test_each_byte_counts(other, wrong):
    count, compared = differences.differing("greedy", [reply(), other])
    assert count >= wrong and compared > 100


def test_clients_that_left_read_the_same_beginning():
    def cut(text, ids):
        return {"choices": [{"text": text, "token_ids": ids}]}
    assert differences.differing("cancelled", [cut("a b", [1, 2]), cut("a b c", [1, 2, 3])])[0] == 0
    assert differences.differing("cancelled", [cut("a b", [1, 2]), cut("a c d", [1, 3, 4])])[0] == 2


def test_events_are_joined():
    logprobs = [{"tokens": ["a"], "text_offset": [0]}, {"tokens": ["b"], "text_offset": [1]}]
    choice = {}
    for text, logprob, reason in (("a", logprobs[0], None), ("b", logprobs[1], "stop")):
        differences.joined(choice, {"index": 0, "text": text, "logprobs": logprob, "finish_reason": reason})
    assert choice == {"index": 0, "text": "ab", "logprobs": {"tokens": ["a", "b"], "text_offset": [0, 1]},
                      "finish_reason": "stop"}


def compare(folder, *options, model="llama"):
    command = [sys.executable, HERE / "differences.py", folder / "models", "--answers", "5", "--models", model, *options]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ)


def test_guesses_change_nothing(tmp_path):
    """And a server that does write otherwise is found out."""
    done = compare(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    total = done.stdout.splitlines()[-1].split()
    assert int(total[1]) >= 5 and int(total[4]) == 0 and int(total[5]) > 0
    other = compare(tmp_path, "--one", "server.max_context=40")
    assert other.returncode == 1 and json.loads(other.stdout.splitlines()[0].split("differ: ")[1])["prompt"]


@pytest.mark.parametrize("model", ["delta", "convolution", "space", "latent"])
def test_states_change_nothing(tmp_path, model):
    """Of models with states and with latents: what is kept and drafts that are replayed, or neither."""
    done = compare(tmp_path, "--one", "server.drafts=always", "--other", "server.prefix_cache_mb=0", "--answers", "60", model=model)
    assert done.returncode == 0, done.stdout + done.stderr
    total = done.stdout.splitlines()[-1].split()
    assert int(total[1]) >= 60 and int(total[4]) == 0 and int(total[6]) > 0
