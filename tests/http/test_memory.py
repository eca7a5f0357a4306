"""The memory budget holds what the server really takes, and is not far above it."""
import concurrent.futures
import json
import pathlib
import re

from conftest import DEPS, MODEL, ROOT

UNITS = {"MB": 1e6, "GB": 1e9}


def counted(server):
    """Bytes of the budget: all parts but mapped ones."""
    found = re.search(r"memory: (.*): ([\d.]+) (MB|GB) of", server.log.read_text())
    assert ", program " in found[1]
    return float(found[2]) * UNITS[found[3]]


def anonymous(server):
    rollup = pathlib.Path(f"/proc/{server.process.pid}/smaps_rollup").read_text()
    return 1024 * int(re.search(r"^Anonymous:\s+(\d+) kB", rollup, re.M)[1])


def test_the_budget_holds_under_load(start):
    server = start("retrieval.embedder_dtype=bf16")
    assert anonymous(server) < counted(server)

    def complete(i):
        return server.complete([[(7 * i + j) % 8000 + 100 for j in range(250)]], max_tokens=120, ignore_eos=True,
                               logprobs=5, retrieval={"k": 16})

    def search(i):
        return server.post({"query": f"how to {i}", "k": 16}, "/v1/retrieval/search").json()

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        jobs = [pool.submit(complete, i) for i in range(12)] + [pool.submit(search, i) for i in range(60)]
        for job in jobs:
            job.result()
    taken = anonymous(server)
    assert taken < counted(server) < taken + 100e6


def test_models_beside_the_first_are_counted(start):
    """The memory of model.others is compared before the first model is loaded, and told in the same line."""
    rows = [{"path": str(ROOT / "models" / MODEL), "name": "second"}, {"path": str(DEPS / "minilm"), "name": "two", "role": "embedder"}]
    server = start(f"model.others={json.dumps(rows)}")
    line = next(line for line in server.log.read_text().splitlines() if "memory: " in line and ", program " in line)
    parts = {name: float(value) * UNITS[unit] for name, value, unit in re.findall(r"([a-z ]+) ([\d.]+) (MB|GB)\b(?! mapped)", line)}
    other = next(value for name, value in parts.items() if name.endswith("other models"))
    weights = next(value for name, value in parts.items() if name.endswith("weights"))
    assert other > weights + parts[" cache"] + parts[" neighbours"]
    assert anonymous(server) < counted(server)
