"""retro-eval ppl and lm against the same definitions computed with PyTorch, on a model whose retrieval matters."""

import csv
import json
import subprocess

import numpy as np
import pytest
import standin
import torch
from retro_train.config import ModelConfig
from retro_train.evaluate import cut_windows, evaluate, random_ids, token_bits
from retro_train.export import write_model
from retro_train.model import Neighbours, Retro
from retro_train.neighbours import Collection, query_collection, read_neighbours
from retro_train.plot import plot_curve
from retro_train.tokenizer import Vocabulary, train

M, R, K, NEAREST, WINDOW = 16, 32, 3, 10, 64
MODEL = {"architecture": "retro", "num_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "vocab_size": 400,
         "max_position_embeddings": 192, "position_embedding_type": "learned_absolute", "activation": "gelu_tanh",
         "retro_layers": [2], "retro_chunk_length": M, "retro_num_neighbors": K, "eod_token_id": 0}
GPT = {k: v for k, v in MODEL.items() if not k.startswith("retro_")} | {"architecture": "gpt"}
TOLERANCE = 1e-4  # bits per byte, or nats of a choice; both compute in float32


def random_model(values, seed):
    """Weights large enough for neighbours and context to change every probability."""
    torch.manual_seed(seed)
    model = Retro(ModelConfig.from_dict(values)).eval()
    with torch.no_grad():
        for p in model.parameters():
            p += 0.15 * torch.randn_like(p)
    return model


class Home:
    """A collection, a model and a GPT on disk, and the same models here."""

    def __init__(self, folder, build, deps):
        self.folder, self.build = folder, build
        texts = standin.documents(24)
        (folder / "docs").mkdir()
        for name, text in texts[:20]:
            (folder / "docs" / name).write_text(text)
        # Unseen pages; one that copies a stored page; nonsense; ends that are shorter than a chunk and than eight tokens.
        nonsense = " ".join("".join(w) for w in np.random.default_rng(5).choice(list("aeioubdfgklmnpqrst"), (60, 5)))
        self.texts = [text for _, text in texts[20:]] + [texts[3][1] + "The end of it.", nonsense, "Short.", texts[21][1][:333]]
        (folder / "model").mkdir()
        train((text for _, text in texts), 400).save(str(folder / "model/tokenizer.json"))
        self.vocabulary = Vocabulary(folder / "model/tokenizer.json")
        self.model, self.gpt = random_model(MODEL, 0), random_model(GPT, 1)
        write_model(folder / "model", self.model, None)
        write_model(folder / "gpt", self.gpt, folder / "model/tokenizer.json")
        self.config = folder / "retro.json"
        self.config.write_text(json.dumps({"model": {"path": "model"}, "retrieval": {
            "collection": "collection", "embedder": str(deps / "minilm"), "hybrid": False}}))
        # The pages repeat themselves; FAISS rounds, and so orders nearly equal chunks, by how many queries come at once.
        subprocess.run([build / "retro-index", "build", "--chunks", "grid", "--out", folder / "collection", "--config", self.config, "--index", "Exact",
                        folder / "docs"], check=True, capture_output=True)
        self.collection = Collection(folder / "collection")
        self.documents = [self.vocabulary.encode(text) for text in self.texts]

    def search(self, chunks, k):
        """Neighbours [chunks, k] of token arrays."""
        queries = [{"document": "", "text": self.vocabulary.decode(ids)} for ids in chunks]
        query_collection(self.build / "retro-index", self.config, self.folder / "collection", k, queries, self.folder / "found")
        return read_neighbours(self.folder / "found").ids

    def run(self, command, *arguments):
        done = subprocess.run([self.build / "retro-eval", command, "--config", self.config, *map(str, arguments)],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory, build, deps):
    torch.set_num_threads(1)
    return Home(tmp_path_factory.mktemp("evaluate"), build, deps)


def grams(tokens, n):
    return {tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)}


def overlap(chunk, texts):
    """The longest common run and the share of 8-grams (of the whole chunk when it is shorter), by sets of n-grams."""
    lengths = [n for n in range(1, len(chunk) + 1) if any(grams(chunk, n) & grams(text, n) for text in texts)]
    n = min(8, len(chunk))
    known = set().union(*(grams(text, n) for text in texts))
    places = [tuple(chunk[i : i + n]) in known for i in range(len(chunk) - n + 1)]
    return max(lengths, default=0) / len(chunk), sum(places) / len(places)


@pytest.fixture(scope="module")
def table(home):
    """Neighbours of all complete chunks, and a row for each chunk that may read neighbours: run, grams, document, bytes, bits of each mode."""
    windows = cut_windows(home.documents, WINDOW, M)
    found = home.search([ids[at : at + M] for ids in home.documents for at in range(0, len(ids) - M + 1, M)], K)
    modes = {"on": (home.model, found), "off": (home.model, None), "gpt": (home.gpt, None),
             "random": (home.model, random_ids(len(found), K, len(home.collection), 1))}
    bits = {mode: {id(w): b for w, b in token_bits(net, windows, ids, home.collection, "cpu")} for mode, (net, ids) in modes.items()}
    parts = [(w, at) for w in windows for at in range(M, len(w.tokens), M)]
    nearest = home.search([w.tokens[at : at + M] for w, at in parts], NEAREST)
    rows = []
    for (w, at), ids in zip(parts, nearest, strict=True):
        chunk = w.tokens[at : at + M]
        texts = home.collection.neighbour_tokens(np.concatenate([ids, found[w.chunk + at // M - 1]]), R)
        here = slice(at - 1, at - 1 + len(chunk))
        rows.append({"document": w.document, "bytes": home.vocabulary.bytes[chunk].sum(),
                     **dict(zip(("run", "8grams"), overlap(chunk, texts))), **{m: bits[m][id(w)][here].sum() for m in modes}})
    return rows, found


def test_ppl(home, table, tmp_path):
    lines = tmp_path / "documents.jsonl"
    lines.write_text("".join(json.dumps({"text": text}) + "\n\n" for text in home.texts))
    common = ("--window", WINDOW, "--baseline", home.folder / "gpt")
    result = json.loads(home.run("ppl", *common, "--json", "--curve", tmp_path / "curve.csv", lines))
    rows, found = table
    whole = evaluate(home.model, home.documents, home.vocabulary, WINDOW, found, home.collection, home.gpt)
    assert result["documents"] == len(home.texts) and result["k"] == K and result["datastore"]["chunks"] == len(home.collection)
    assert result["subsets"]["all"]["bytes"] == whole["bytes"] and result["subsets"]["all"]["tokens"] == whole["tokens"]
    levels = {mode: v["bits_per_byte"] for mode, v in result["subsets"]["all"]["modes"].items()}
    assert levels == pytest.approx({mode: v["bits_per_byte"] for mode, v in whole["modes"].items()}, abs=TOLERANCE)
    assert len({round(v, 3) for v in levels.values()}) == 4  # or their agreement would say nothing
    for pair, value in result["subsets"]["all"]["gains"].items():
        assert value["percent"] == pytest.approx(whole["gains"][pair]["percent"], abs=0.01)
        assert value["low"] == pytest.approx(whole["gains"][pair]["low"], abs=0.35 * (value["high"] - value["low"]) + 0.01)
        assert value["low"] <= value["percent"] <= value["high"]

    chosen = {"after_first_chunk": lambda r: True, "no_8gram": lambda r: r["8grams"] == 0, "8grams_tenth": lambda r: r["8grams"] <= 0.1,
              "run_eighth": lambda r: r["run"] <= 0.125}
    counts = set()
    for name, condition in chosen.items():
        mine, subset = [r for r in rows if condition(r)], result["subsets"][name]
        size = sum(r["bytes"] for r in mine)
        counts.add(size)
        assert subset["bytes"] == size
        for mode, value in subset["modes"].items():
            assert value["bits_per_byte"] == pytest.approx(sum(r[mode] for r in mine) / size, abs=TOLERANCE)
        for pair, value in subset["differences"].items():
            of, other = pair.split(" against ")
            assert value["bits_per_byte"] == pytest.approx(sum(r[of] - r[other] for r in mine) / size, abs=TOLERANCE)
    assert len(counts) >= 3 and min(counts) > 0

    with open(tmp_path / "curve.csv", newline="") as file:
        curve = list(csv.DictReader(file))
    assert len(curve) == 2 * 17
    for line in curve:
        mine = [r for r in rows if r[line["overlap"]] <= float(line["at_most"])]
        assert int(line["bytes"]) == sum(r["bytes"] for r in mine)
        for mode in ("on", "off", "random", "gpt"):
            assert not mine and line[mode] == "" or float(line[mode]) == pytest.approx(
                sum(r[mode] for r in mine) / int(line["bytes"]), abs=TOLERANCE)
    plot_curve(tmp_path / "curve.csv", tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes()[:4] == b"\x89PNG"
    printed = home.run("ppl", *common, lines)
    assert "%+.4f (" % result["subsets"]["run_eighth"]["differences"]["on against gpt"]["bits_per_byte"] in printed
    assert all(pair in printed for pair in ("on against off", "on against gpt", "random against off"))


def test_paired_intervals_are_of_the_difference(home, table, tmp_path):
    """Each resample takes both modes of a document: numpy's interval of the same differences, of many more draws."""
    lines = tmp_path / "documents.jsonl"
    lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in home.texts))
    rows, _ = table
    subset = json.loads(home.run("ppl", "--window", WINDOW, "--json", lines))["subsets"]["after_first_chunk"]
    of, size = (np.array([sum(f(r) for r in rows if r["document"] == d) for d in range(len(home.texts))])
                for f in (lambda r: r["on"] - r["off"], lambda r: r["bytes"]))
    picks = np.random.default_rng(0).integers(0, len(of), (20000, len(of)))
    low, high = np.quantile(of[picks].sum(1) / np.maximum(size[picks].sum(1), 1), (0.025, 0.975))
    mine = subset["differences"]["on against off"]
    assert mine["low"] == pytest.approx(low, abs=0.15 * (high - low)) and mine["high"] == pytest.approx(high, abs=0.15 * (high - low))


RECORDS = [
    {"prompt": "The fork() call returns", "choices": [" the wait descriptor of process 7", " a moon", " errors"], "answer": 0},
    {"prompt": "The exec() call ", "choices": ["fails", "returns the pipe descriptor of process 3 after kill() has failed with error 21. "
                                               "The open() call returns the stat descriptor of process 5 after mount() has failed."], "answer": 1},
    {"prompt": "", "choices": ["page 7", "The"], "answer": 0},
    {"prompt": "page 3\n\nThe read() call returns the close descriptor of process 12 after chmod() has failed with error 34. The mount() "
               "call returns the wait descriptor of process 44 after read() has failed with", "choices": [" error 8.", " success!"], "answer": 0},
    {"prompt": "page 3\n", "choices": ["\nThe", " naïve 漢字 text", "x"], "answer": 2},
]


def split(home, prompt, choice):
    """Prompt's and choice's tokens, as lm-evaluation-harness splits them."""
    text = prompt.rstrip()
    before, whole = home.vocabulary.encode(text).tolist(), home.vocabulary.encode(prompt + choice).tolist()
    return before or [0], whole[len(before) :]


def closings(tokens, first, grid_start):
    """Ends of the chunks that close while all but the last token are fed; the grid is that of a prompt of `first` tokens."""
    return list(range(M if grid_start else first % M or M, len(tokens), M))


@torch.no_grad()
def log_probabilities(home, tokens, first, ends, found):
    """Log-probabilities of tokens[first:], with neighbours and without."""
    read, ids = None, torch.tensor(tokens[:-1])[None]
    if ends:
        neighbours = torch.from_numpy(home.collection.neighbour_tokens(found, R))[None]
        read = Neighbours(neighbours, torch.tensor([ends[0]]), torch.from_numpy((found >= 0).sum(1))[None])
    sums = []
    for each in (read, None):
        p = home.model.logits(home.model.hidden(ids, each))[0].log_softmax(-1)
        sums.append(sum(p[i - 1, tokens[i]].item() for i in range(first, len(tokens))))
    return sums


def expected_scores(home, grid_start):
    """[record][choice] -> (choice's tokens, log-probability on, off); one search for all chunks."""
    asked, chunks = [], []
    for record in RECORDS:
        for choice in record["choices"]:
            before, after = split(home, record["prompt"], choice)
            tokens, ends = before + after, closings(before + after, len(before), grid_start)
            asked.append((tokens, len(before), ends, slice(len(chunks), len(chunks) + len(ends))))
            chunks += [tokens[max(0, end - M) : end] for end in ends]
    found = home.search(chunks, K)
    scores = iter([(len(t) - n, *log_probabilities(home, t, n, ends, found[mine])) for t, n, ends, mine in asked])
    return [[next(scores) for _ in record["choices"]] for record in RECORDS]


@pytest.mark.parametrize("grid", ["end", "start"])
def test_lm(home, tmp_path, grid):
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in RECORDS))
    out = tmp_path / "records.jsonl"
    result = json.loads(home.run("lm", "--set", f"retrieval.grid={grid}", "--records", out, "--json", tmp_path / "q.jsonl"))
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    right, bits, size, differ = {}, {"on": 0.0, "off": 0.0}, 0, 0
    for record, line, scores in zip(RECORDS, lines, expected_scores(home, grid == "start"), strict=True):
        tokens, on, off = zip(*scores)
        assert line["tokens"] == list(tokens) and line["bytes"] == [len(choice.encode()) for choice in record["choices"]]
        differ += max(abs(a - b) for a, b in zip(on, off)) > 0.01
        for mode, values in (("on", on), ("off", off)):
            assert line[mode]["logprobs"] == pytest.approx(list(values), abs=TOLERANCE, rel=1e-5)
            assert line[mode]["likeliest"] == int(np.argmax(values))
            assert line[mode]["likeliest_per_byte"] == int(np.argmax(np.array(values) / line["bytes"]))
            bits[mode] -= values[record["answer"]] / np.log(2)
            for name, key in (("accuracy", "likeliest"), ("accuracy_per_byte", "likeliest_per_byte")):
                right.setdefault((mode, name), []).append(line[mode][key] == record["answer"])
        size += line["bytes"][record["answer"]]
    assert differ >= (5 if grid == "end" else 2)  # from the prompt's end on, every prompt retrieves
    for (mode, name), values in right.items():
        assert result[mode][name]["value"] == pytest.approx(np.mean(values))
    for mode in bits:
        assert result[mode]["answer_bits_per_byte"]["value"] == pytest.approx(bits[mode] / size, abs=TOLERANCE)
    assert result["chance"] == pytest.approx(np.mean([1 / len(r["choices"]) for r in RECORDS]))
    assert result["records"] == len(RECORDS) and result["grid"] == grid
