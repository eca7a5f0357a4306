"""retro-eval ppl with passages in the prompt against a server: what it scores is what is served.

A window's first chunk is sent as a prompt; the passages that its answer names, put before the window by hand, give the
log-probabilities of the window's tokens."""
import json
import math
import pathlib
import subprocess
import sys

import pytest
from conftest import BUILD, CONTEXT, DEPS, MODEL, ROOT, Server

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import downloaded  # noqa: E402

WINDOW, CHUNK = 192, 64
TEMPLATE = "{number}. {title}: {text}\n"
# Texts of the test's own: how far a random model's bits move by a passage is chance, which a page of docs would draw anew
# whenever somebody writes in it.
TEXT = "".join(f"The {a} of the {b} is read before the {c} is written. " for a, b, c in zip(
    ("head", "name", "length", "owner", "date", "mode", "number", "state", "key", "first line", "last page"),
    ("file", "folder", "request", "answer", "log", "process", "socket", "index", "document", "table", "message"),
    ("lock", "sum", "body", "reply", "entry", "signal", "port", "record", "chunk", "row", "mark")))
PAGES = {page: "".join(f"A {page} has a {part}, and its {part} is {quality} before it is used.\n" for part in
                       ("head", "length", "name", "owner", "sum", "row", "entry", "state")
                       for quality in ("checked", "counted", "written", "printed", "sorted"))
         for page in ("file", "request", "process")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("ppl")
    downloaded.write_folder(path / "tiny", {"do_sample": False})
    for name, model, tokens in (("retro", ROOT / "models" / MODEL, 200), ("tiny", path / "tiny", 1200)):
        (path / f"{name}.json").write_text(json.dumps({
            "model": {"path": str(model), "dtype": "f32"},
            "retrieval": {"collection": str(path / "collection"), "embedder": str(DEPS / "minilm"), "template": TEMPLATE,
                          "prompt_tokens": tokens, "k": 2},
            "server": {"port": 0}}))
    pages = [path / f"{page}.txt" for page in PAGES]
    for page, text in zip(pages, PAGES.values()):
        page.write_text(text)
    subprocess.run([BUILD / "retro-index", "build", "--out", path / "collection", "--config", path / "retro.json", *pages],
                   check=True, capture_output=True)
    (path / "text.txt").write_text(TEXT)
    return path


def ppl(config, *arguments):
    done = subprocess.run([BUILD / "retro-eval", "ppl", "--config", config, "--window", str(WINDOW), *map(str, arguments)],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Reader:
    """Bits of a window's tokens behind whatever stands before it, as a server scores them."""

    def __init__(self, server):
        self.server = server
        self.begin = self.tokens("a", True)[:-1]

    def tokens(self, text, special=False):
        return self.server.post({"prompt": text, "add_special_tokens": special}, "/tokenize").json()["tokens"]

    def passages(self, ids):
        reply = self.server.complete([self.begin + ids], max_tokens=1, retrieval={"mode": "prompt"})
        fields = TEMPLATE.replace("{title}", "{0[title]}").replace("{text}", "{0[text]}").replace("{number}", "{0[number]}")
        return [i for n in reply["retrieval"][0]["neighbors"] for i in self.tokens(fields.format(n))]

    def bits(self, head, ids, first):
        """Of tokens from `first` on; head and ids are what is read."""
        reply = self.server.complete([self.begin + head + ids], max_tokens=0, echo=True, logprobs=0, retrieval={"enabled": False})
        logprobs = reply["choices"][0]["logprobs"]["token_logprobs"]
        return -sum(logprobs[len(self.begin) + len(head) + first:]) / math.log(2)


@pytest.mark.parametrize("every", [0, 48])
@pytest.mark.parametrize("model", ["tiny", "retro"])
def test_as_served(folder, tmp_path, model, every):
    config = folder / f"{model}.json"
    options = ["--set", "retrieval.mode=prompt", "--set", f"retrieval.every={every}"]
    result = json.loads(ppl(config, *options, "--json", folder / "text.txt"))
    server = Server(config, tmp_path)
    reader = Reader(server)
    ids, on, off, moved = reader.tokens(TEXT), 0, 0, 0
    for at in range(0, len(ids), WINDOW):
        window = ids[at:at + WINDOW]
        head = reader.bits([], window[:CHUNK], 1)
        off += head
        on += head
        for first in range(CHUNK, len(window), every or WINDOW):
            end = min(len(window), first + (every or WINDOW))
            read = reader.bits(reader.passages(window[:first]), window[:end], first)
            unread = reader.bits([], window[:end], first)
            on += read
            off += unread
            moved += abs(read - unread)
    scored = result["subsets"]["all"]
    modes = {name: mode["bits_per_byte"] * scored["bytes"] for name, mode in scored["modes"].items()}
    assert modes["on"] == pytest.approx(on, rel=1e-6) and modes["off"] == pytest.approx(off, rel=1e-6)
    assert moved > 1e-3 * off and abs(modes["random"] - modes["on"]) > 1e-4 * off
    assert (result["mode"], result["passages"], result["every"]) == ("prompt", 2, every)
    assert server.stop() == 0


def test_both(folder):
    """In both modes a Retro model reads passages and neighbours; the rest is as in each alone."""
    results = {mode: json.loads(ppl(folder / "retro.json", "--set", f"retrieval.mode={mode}", "--json", folder / "text.txt"))
               for mode in ("attention", "prompt", "both")}
    bits = {mode: {name: v["bits_per_byte"] for name, v in result["subsets"]["all"]["modes"].items()} for mode, result in results.items()}
    assert bits["attention"]["off"] == bits["prompt"]["off"] == bits["both"]["off"]
    assert len({bits[mode]["on"] for mode in bits} | {bits[mode]["random"] for mode in bits}) == 6
    sizes = {mode: result["subsets"]["after_first_chunk"]["bytes"] for mode, result in results.items()}
    assert len(set(sizes.values())) == 1


def test_overlap_with_what_was_read(folder):
    """A page of the collection shares all of its chunks with it; made-up words share none."""
    (folder / "words.txt").write_text(" ".join(f"zq{i * 7919 % 1000}x" for i in range(120)))
    (folder / "copy.txt").write_text(PAGES["request"][:1500])
    subsets = {name: json.loads(ppl(folder / "tiny.json", "--json", folder / f"{name}.txt"))["subsets"] for name in ("words", "copy")}
    for name in ("no_8gram", "8grams_tenth", "run_eighth"):
        assert subsets["copy"][name]["bytes"] == 0
    assert subsets["words"]["no_8gram"]["bytes"] > 0.9 * subsets["words"]["after_first_chunk"]["bytes"]


def test_without_a_collection_there_is_nothing_to_read(folder):
    config = json.loads((folder / "tiny.json").read_text())
    del config["retrieval"]["collection"]
    (folder / "none.json").write_text(json.dumps(config))
    assert set(json.loads(ppl(folder / "none.json", "--json", folder / "text.txt"))["subsets"]["all"]["modes"]) == {"off"}


def test_what_does_not_fit_is_refused(folder):
    done = subprocess.run([BUILD / "retro-eval", "ppl", "--config", folder / "retro.json", "--set", "retrieval.mode=prompt", "--window", str(CONTEXT - 64),
                           folder / "text.txt"], capture_output=True, text=True)
    assert done.returncode == 1 and "retrieval.prompt_tokens" in done.stderr and str(CONTEXT) in done.stderr
    done = subprocess.run([BUILD / "retro-eval", "lm", "--config", folder / "retro.json", "--set", "retrieval.mode=both", folder / "text.txt"],
                          capture_output=True, text=True)
    assert done.returncode == 1 and "retrieval.mode" in done.stderr
