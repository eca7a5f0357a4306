"""retro-eval lm scores choices as the running server would write them: the same log-probabilities, with retrieval and without."""
import json
import subprocess

import pytest
from conftest import BUILD, CONTEXT

RECORDS = [
    {"prompt": "A chunk is closed by its last token, which", "choices": [" reads the neighbours", " is blue", "!"], "answer": 0},
    {"prompt": "The fork() system call ", "choices": ["creates a new process", "naïve 漢字"], "answer": 0},
    # Over one chunk long already, so that the prompt closes two.
    {"prompt": "retro-server answers HTTP requests with text from a Retro language model. " * 6, "choices": [" It", " The end"], "answer": 0},
]
PRECISION = 2e-4  # of a sum of float32 log-probabilities; the server keeps floats, retro-eval sums doubles


def lm(config, folder, records, *options):
    (folder / "q.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    command = [BUILD / "retro-eval", "lm", "--config", config, "--records", folder / "out.jsonl", *options, folder / "q.jsonl"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


def echoed(server, text, n, **fields):
    """The sum over the last n tokens of a text that the server reads."""
    scores = server.complete(text, max_tokens=0, echo=True, logprobs=0, **fields)["choices"][0]["logprobs"]["token_logprobs"]
    return sum(scores[len(scores) - n:])


def compare(server, lines, mode, retrieval):
    for record, line in zip(RECORDS, lines, strict=True):
        for j, choice in enumerate(record["choices"]):
            theirs = echoed(server, record["prompt"] + choice, line["tokens"][j], retrieval={"enabled": retrieval})
            assert line[mode]["logprobs"][j] == pytest.approx(theirs, abs=PRECISION)


def test_without_retrieval(server, config, tmp_path):
    compare(server, lm(config, tmp_path, RECORDS), "off", False)


def test_with_a_grid_from_the_start(start, config, tmp_path):
    """There the grid does not depend on where the prompt ends, so a server can read prompt and choice as one prompt."""
    lines = lm(config, tmp_path, RECORDS, "--set", "retrieval.grid=start")
    compare(start("retrieval.grid=start"), lines, "on", True)
    assert lines[2]["on"]["logprobs"] != pytest.approx(lines[2]["off"]["logprobs"], abs=0.01)


def test_with_the_prompts_grid(server, config, tmp_path):
    """The server's own continuation of a prompt is a choice; long enough that it closes a chunk of its own."""
    differences = []
    for prompt in (r["prompt"] for r in RECORDS):
        prompt = prompt.rstrip()
        written = server.complete(prompt, max_tokens=90, temperature=0.7, seed=3, logprobs=0, ignore_eos=True)
        choice = written["choices"][0]
        assert len(written["retrieval"]) >= 2
        record = {"prompt": prompt, "choices": [choice["text"], " something else"], "answer": 0}
        line = lm(config, tmp_path, [record])[0]
        read = server.complete(prompt + choice["text"], max_tokens=0, echo=True, logprobs=0)["choices"][0]["logprobs"]["tokens"]
        if read[-90:] == choice["logprobs"]["tokens"]:  # the text may have other tokens too
            assert line["tokens"][0] == 90
            assert line["on"]["logprobs"][0] == pytest.approx(sum(choice["logprobs"]["token_logprobs"]), abs=PRECISION)
            differences.append(abs(line["on"]["logprobs"][0] - line["off"]["logprobs"][0]))
    assert max(differences) > 0.05  # the texts that kernels of another machine draw lean on the documents more, or less


def test_without_a_collection(config, tmp_path):
    line = lm(config, tmp_path, RECORDS[:1], "--set", "retrieval.collection=")[0]
    assert "on" not in line and line["off"]["likeliest"] in (0, 1, 2)


BAD = [
    ("{", "q.jsonl:2"), ("[]", "expected {"), ('{"prompt": "a", "choices": [" b"], "answer": 0}', "1 choices, expected 2"),
    ('{"prompt": "a", "choices": [" b", ""], "answer": 0}', "choice 1"), ('{"prompt": "a", "choices": [" b", 3], "answer": 0}', "choice 1"),
    ('{"prompt": "a", "choices": [" b", " c"], "answer": 2}', "answer is choice 2"),
    ('{"prompt": "a", "choices": [" b", " c"], "answer": "b"}', "expected {"),
    ('{"prompt": "th", "choices": ["e", " c"], "answer": 0}', "begin it with a blank"),
    ('{"prompt": "%s", "choices": [" b", " c"], "answer": 0}' % ("word " * 1200), f"the limit is {CONTEXT}"),
]


@pytest.mark.parametrize("line,words", BAD, ids=range(len(BAD)))
def test_bad_records_are_named(config, tmp_path, line, words):
    (tmp_path / "q.jsonl").write_text("\n" + line + "\n")
    done = subprocess.run([BUILD / "retro-eval", "lm", "--config", config, tmp_path / "q.jsonl"], capture_output=True, text=True)
    assert done.returncode == 1 and words in done.stderr and "q.jsonl:2" in done.stderr, done.stderr


@pytest.mark.parametrize("arguments,words", [([], "no file"), (["--seed", "x"], "whole number"), (["--frob", "x"], "unknown option"),
                                             (["--seed"], "needs a value"), (["/nowhere.jsonl"], "nowhere.jsonl")])
def test_bad_command_lines(config, arguments, words):
    done = subprocess.run([BUILD / "retro-eval", "lm", "--config", config, *arguments], capture_output=True, text=True)
    assert done.returncode == 1 and words in done.stderr, done.stderr
