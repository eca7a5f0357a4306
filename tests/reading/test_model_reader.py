"""extract.reader model: a served model reads the pages, and what it fails at is named and read without it."""
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import scan_files  # noqa: E402
from lock_pdf import LockedPdf  # noqa: E402
from page_model import PageModel  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
INDEX = ROOT / os.environ.get("RETRO_BUILD", "build") / "retro-index"
DEPS = pathlib.Path(os.environ.get("RETRO_DEPS", pathlib.Path.home() / ".cache/retro-server"))
MODEL = ["--set", f"model.path={ROOT / 'models/retro-docs'}", "--set", f"retrieval.embedder={DEPS / 'minilm'}"]


def run(*words, code=0):
    done = subprocess.run([INDEX, *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture()
def three(tmp_path):
    """Three pages, each of which says its number in words that stand in the file."""
    pdf = scan_files.Pdf()
    for name in ("first", "second", "third"):
        pdf.page(lines=[(72, 700, 11, f"The {name} page as it stands in the file."), (72, 684, 11, f"It goes on with {name} words.")])
    return pdf.write(tmp_path / "three.pdf")


def test_pages_are_read(three):
    pages = ["# Of boats\n\nKayaks are hired by the day.\n\n| boat | price |\n|---|---|\n| Kayak | 290 |\n",
             "```markdown\n## Of tides\n\n- ebb\n- flood\n```", "---\nThe last page."]
    with PageModel(lambda n, picture: pages[n - 1]) as model:
        said = run("extract", *model.options(), three)
        assert said.stderr == ""
        assert said.stdout == pages[0].strip() + "\n\n## Of tides\n\n- ebb\n- flood\n\nThe last page.\n"
        assert all(path == "/v1/chat/completions" for path, _ in model.heads) and "Authorization" not in model.heads[0][1]
        assert [body["model"] for body in model.asked] == ["seer"] * 3


def test_key_prompt_and_tokens(three, tmp_path):
    (tmp_path / "key").write_text("open-sesame\nsecond line\n")
    with PageModel(lambda n, picture: "Text.") as model:
        run("extract", *model.options(model_key_file=tmp_path / "key", model_prompt="Read it.", model_tokens=77), three)
        assert model.heads[0][1]["Authorization"] == "Bearer open-sesame"
        assert model.asked[0]["max_tokens"] == 77
        assert model.asked[0]["messages"][0]["content"][1] == {"type": "text", "text": "Read it."}


def test_failures_are_named_and_read_without_it(three):
    def answer(n, picture):
        return {1: "# One", 2: (400, json.dumps({"error": {"message": "too large a picture"}})), 3: "Three."}[n]
    with PageModel(answer) as model:
        said = run("extract", *model.options(), three)
        assert "lost: page 2: the model did not read it (its server answered with HTTP status 400: too large a picture); it is read without one" in said.stderr
        assert said.stdout.startswith("# One\n\nThe second page as it stands in the file.") and said.stdout.endswith("\n\nThree.\n")
        assert "first page" not in said.stdout


@pytest.mark.parametrize("answer, reason", [
    ((200, "no json"), "its server's answer is no JSON"),
    ((200, json.dumps({"choices": []})), "its answer holds no text"),
    (" \n ", "its answer holds no text"),
    ((200, json.dumps({"choices": [{"message": {"content": "half a"}, "finish_reason": "length"}]})), "its answer ended at 4096 tokens (extract.model_tokens)"),
    ((307, "{}"), "its server answered with HTTP status 307"),
])
def test_answers_that_are_none(three, answer, reason):
    with PageModel(lambda n, picture: answer) as model:
        said = run("extract", *model.options(), three)
        assert f"pages 1 to 3: the model did not read it ({reason}" in said.stderr
        assert "The first page as it stands" in said.stdout and "The third page as it stands" in said.stdout


def test_a_server_that_is_away_is_asked_no_more(tmp_path):
    pdf = scan_files.Pdf()
    for _ in range(6):
        pdf.page(lines=[(72, 700, 11, "A page of a longer file.")])
    with PageModel(lambda n, picture: (503, "{}")) as model:
        said = run("extract", *model.options(), pdf.write(tmp_path / "six.pdf"))
        assert len(model.asked) == 3 and "pages 1 to 6: the model did not read it" in said.stderr
    said = run("extract", "--set", "extract.reader=model", "--set", "extract.model_url=http://127.0.0.1:9/v1", "--set", "extract.model=x", tmp_path / "six.pdf")
    assert "its server was not reached" in said.stderr and "A page of a longer file." in said.stdout


def test_a_page_has_a_time(three):
    with PageModel(lambda n, picture: "hang" if n == 1 else "Read.") as model:
        said = run("extract", *model.options(model_seconds=2), three)
        assert "page 1: the model did not read it (it takes too long)" in said.stderr
        assert said.stdout.count("Read.") == 2 and "The first page as it stands" in said.stdout


def test_pages_that_were_read_are_kept(three, tmp_path):
    cache = tmp_path / "cache"
    with PageModel(lambda n, picture: f"Page {n}." if n < 3 else (500, "{}")) as model:
        run("extract", *model.options(model_cache=cache), three)
        assert len(model.asked) == 3 and len(list(cache.glob("*.md"))) == 2
    with PageModel(lambda n, picture: "Page three.") as model:
        said = run("extract", *model.options(model_cache=cache), three)
        assert len(model.asked) == 1 and said.stdout == "Page 1.\n\nPage 2.\n\nPage three.\n"
        run("extract", *model.options(model_cache=cache, model_prompt="Another."), three)
        assert len(model.asked) == 4
    assert (cache.stat().st_mode & 0o777) == 0o700 and all(path.stat().st_mode & 0o077 == 0 for path in cache.iterdir())


def test_an_interrupt_ends_it(three, tmp_path):
    import signal
    with PageModel(lambda n, picture: "hang") as model:
        child = subprocess.Popen([INDEX, "build", "--dry-run", *model.options(), *MODEL, three], stderr=subprocess.PIPE, stdout=subprocess.PIPE)
        until = time.monotonic() + 60
        while not model.asked and time.monotonic() < until:
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130


def test_a_locked_file(tmp_path):
    pdf = LockedPdf("sesame")
    pdf.page(lines=[(72, 700, 11, "The text of the file itself.")])
    path = pdf.write(tmp_path / "locked.pdf")
    (tmp_path / "words").write_text("wrong\nsesame\n")
    with PageModel(lambda n, picture: "As the model reads it.") as model:
        assert "needs a password" in run("extract", *model.options(), path, code=1).stderr
        assert model.asked == []
        assert run("extract", *model.options(), "--password-file", tmp_path / "words", path).stdout == "As the model reads it.\n"


def test_passages_have_their_page(three, tmp_path):
    boats, tides = (" ".join(f"{words}, says line {i} of the page." for i in range(40)) for words in ("Kayaks are hired", "Tides turn"))
    with PageModel(lambda n, picture: ["# Boats\n\n" + boats, tides, (500, "{}")][n - 1]) as model:
        out = tmp_path / "collection"
        run("build", "--out", out, *MODEL, *model.options(), three)
        hits = [json.loads(line) for line in run("search", "--json", "-k", "50", out, "tides").stdout.splitlines()]
        assert {hit["page"] for hit in hits if hit["text"].startswith("Tides")} == {2}
        assert {hit["page"] for hit in hits if "Kayaks" in hit["text"] and "Tides" not in hit["text"]} == {1}
        assert any("third page as it stands" in hit["text"] for hit in hits)


def test_options_are_checked(three):
    for options, reason in ((["extract.reader=model"], "needs extract.model_url"),
                            (["extract.reader=model", "extract.model=x", "extract.model_url=ftp://x"], "no http: or https:"),
                            (["extract.reader=seer"], "kind")):
        assert reason in run("extract", *[word for option in options for word in ("--set", option)], three, code=1).stderr
