"""Ids and decodings of every kind of tokenizer are those of the reference libraries, on real text and on Unicode
torture. Fixtures are made once, under $RETRO_BUILD; with RETRO_TOKENIZER_TEXTS=whole (`make tokenizer-test`) on a
megabyte of text and with words of a megabyte, which takes the reference libraries ten minutes."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = (ROOT / os.environ.get("RETRO_BUILD", "build")).resolve()
DEPS = pathlib.Path(os.environ.get("RETRO_DEPS", pathlib.Path.home() / ".cache/retro-server"))
SIZE = os.environ.get("RETRO_TOKENIZER_TEXTS", "some")
FIXTURES = BUILD / f"fixtures/tokenizers-{SIZE}"
SCRIPTS = [ROOT / "tests/reference" / name for name in ("make_tokenizer_fixtures.py", "tokenizer_kinds.py", "tekken_fixture.py")]
NAMES = ["retro-docs", "gpt2", "llama3", "qwen2", "digits", "minilm", "vocab", "unigram", "spm-bpe", "spm-plain", "t5",
         "unigram-bytes", "xlm-r", "spiece", "spiece-listed", "llama2", "metaspace-first", "metaspace-split", "phi3",
         "gemma", "unknown", "unknown-fused", "some-bytes", "ignore-merges", "gpt-neox", "starcoder2", "olmo2", "o200k",
         "qwen3", "smollm3", "splits", "splits-inverted", "punctuation", "whitespace", "tekken"]


@pytest.fixture(scope="session")
def comparer():
    complete = FIXTURES / "complete"
    if not complete.exists() or complete.stat().st_mtime < max(s.stat().st_mtime for s in SCRIPTS):
        subprocess.run([sys.executable, SCRIPTS[0], FIXTURES, DEPS / "minilm", SIZE], check=True)
    program = BUILD / "tests/reference/compare_tokenizers"
    subprocess.run(["make", "-s", f"BUILD={os.environ.get('RETRO_BUILD', 'build')}",
                    os.path.join(os.environ.get("RETRO_BUILD", "build"), "tests/reference/compare_tokenizers")],
                   cwd=ROOT, check=True)
    return program


@pytest.mark.parametrize("name", NAMES)
def test_equals_reference(comparer, name):
    done = subprocess.run([comparer, FIXTURES, name], capture_output=True, text=True, errors="replace")
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = re.search(r"texts=(\d+) ids=(\d+) decoded=\d+ different=0 ", done.stdout)
    least = {"some": (350, 10000), "whole": (500, 100000)}[SIZE]
    assert counts and int(counts[1]) > least[0] and int(counts[2]) > least[1]
