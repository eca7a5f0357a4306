"""Ids and decodings of every kind of tokenizer are those of the reference libraries, on a megabyte of real text and on
Unicode torture. Fixtures are made once, under $RETRO_BUILD."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = (ROOT / os.environ.get("RETRO_BUILD", "build")).resolve()
DEPS = pathlib.Path(os.environ.get("RETRO_DEPS", pathlib.Path.home() / ".cache/retro-server"))
FIXTURES = BUILD / "fixtures/tokenizers"
NAMES = ["retro-docs", "gpt2", "llama3", "qwen2", "digits", "minilm", "vocab", "unigram", "spm-bpe", "spm-plain", "t5",
         "unigram-bytes", "xlm-r", "spiece", "spiece-listed"]


@pytest.fixture(scope="session")
def comparer():
    if not (FIXTURES / "complete").exists():
        script = ROOT / "tests/reference/make_tokenizer_fixtures.py"
        subprocess.run([sys.executable, script, FIXTURES, DEPS / "minilm"], check=True)
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
    assert counts and int(counts[1]) > 500 and int(counts[2]) > 100000
