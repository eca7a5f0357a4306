"""Small runs that compare choices: what a variant changes, and the table of results."""

import json

import pytest
from retro_docs import small_runs
from retro_train.train import Run

RUNS = json.loads((small_runs.HERE / "small_runs.json").read_text())


def test_a_variant_changes_what_it_names():
    base = {"model": {"num_layers": 6, "hidden_size": 128}, "data": "data64", "train": {"steps": 700}}
    change = {"model": {"num_layers": 8}, "data": "data32", "neighbours": {"self_share": 0}, "positions": False}
    assert small_runs.merge(base, change) == {
        "model": {"num_layers": 8, "hidden_size": 128}, "data": "data32", "train": {"steps": 700}, "neighbours": {"self_share": 0}}
    assert base["model"]["num_layers"] == 6


@pytest.mark.parametrize("name", RUNS["variants"])
def test_every_variant_is_a_run(name, tmp_path):
    file = tmp_path / "config.json"
    config = small_runs.merge(RUNS["base"], RUNS["variants"][name])
    file.write_text(json.dumps(config))
    run = Run.create(file, tmp_path / "run")
    assert run.options.steps == 700
    assert name == "base" or RUNS["variants"][name]


def test_the_table_compares_documents(tmp_path, capsys):
    """Bits of two documents: the variant needs 10 % fewer than the base, and retrieval takes 20 % of what it needs without."""
    size = [100, 300]
    of_run = {"base": {"on": [100, 300], "off": [110, 330], "random": [120, 360]},
              "k 4": {"on": [90, 270], "off": [112.5, 337.5], "random": [112.5, 337.5]},
              "GPT of 8 layers": {"off": [105, 315]}}
    for name, bits in of_run.items():
        folder = small_runs.folder_of(tmp_path, name)
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps({"parameters": 2_380_000, "bytes": size, "bits": bits}))
    small_runs.print_table(tmp_path, RUNS["variants"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == [
        "| base | 2.38 M | 1.0000 | 1.1000 | 1.2000 | 9.09 (9.09 .. 9.09) |  |",
        "| GPT of 8 layers | 2.38 M |  | 1.0500 |  |  | -5.00 (-5.00 .. -5.00) |",
        "| k 4 | 2.38 M | 0.9000 | 1.1250 | 1.1250 | 20.00 (20.00 .. 20.00) | 10.00 (10.00 .. 10.00) |"]
