"""retro-eval support: sentences of what was read are told from planted false ones."""
import json
import re
import subprocess

import pytest
from conftest import BUILD
from test_retrieval_modes import folder, write_config  # noqa: F401

QUESTIONS = ["How is a collection built?", "What is a chunk?", "How are requests batched?"]
KINDS = {"true", "numbers", "names", "elsewhere", "quoted", "unquoted"}


def run(config, path, *arguments):
    path.write_text("".join(json.dumps({"question": q, "manual": "any"}) + "\n" for q in QUESTIONS))
    command = [BUILD / "retro-eval", "support", "--config", config, *arguments, path]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("mode", ["attention", "prompt"])
def test_what_is_planted(folder, tmp_path, mode):  # noqa: F811
    config, records = folder / "retro.json", tmp_path / "records"
    done = [run(config, tmp_path / "questions", "--json", "--records", records, "--set", f"retrieval.mode={mode}") for _ in range(2)]
    assert done[0].returncode == 0, done[0].stderr
    assert done[0].stdout == done[1].stdout
    result = json.loads(done[0].stdout)
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    assert result["questions"] == 3 and set(result["sentences"]) == KINDS
    assert all(result["sentences"][kind] == sum(line["kind"] == kind for line in lines) for kind in KINDS)
    assert all(0 <= area <= 1 for area in (result["auc"]["all planted"], result["auc"]["other documents"]))
    true = {line["sentence"] for line in lines if line["kind"] == "true"}
    for line in lines:
        if line["kind"] == "numbers":
            assert line["sentence"] not in true
            shape = re.sub(r"\d", "0", line["sentence"])
            assert shape in {re.sub(r"\d", "0", sentence) for sentence in true}
        if line["kind"] == "names":
            words = line["sentence"].split()
            assert any(len(words) == len(one.split()) and sum(a != b for a, b in zip(words, one.split())) == 1 for one in true)
    of = {(line["question"], line["sentence"]): line["kind"] for line in lines if line["kind"] in ("true", "elsewhere")}
    assert all(of[line["question"], line["sentence"]] == line["kind"] for line in lines if line["kind"] in ("true", "elsewhere"))
    assert min(result["sentences"][kind] for kind in ("true", "elsewhere", "names")) > 0


def test_the_table(folder, tmp_path):  # noqa: F811
    done = run(folder / "retro.json", tmp_path / "questions")
    assert done.returncode == 0 and re.search(r"^all planted +\d+ +\d+ +[01]\.\d{3}$", done.stdout, re.MULTILINE), done.stderr


def test_refusals(folder, tmp_path):  # noqa: F811
    done = run(folder / "retro.json", tmp_path / "questions", "--set", "retrieval.collection=")
    assert done.returncode == 1 and "retrieval.collection is needed" in done.stderr
    done = run(folder / "retro.json", tmp_path / "questions", "--set", "retrieval.mode=both")
    assert done.returncode == 1 and "retrieval.mode is both" in done.stderr
