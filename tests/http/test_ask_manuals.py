"""tools/ask_manuals.py: what counts as a quotation, and the page that a running server's answers make."""
import json
import re
import subprocess
import sys

from conftest import BUILD, ROOT

sys.path.insert(0, str(ROOT / "tools"))
import ask_manuals  # noqa: E402

SCRIPT = ROOT / "tools/ask_manuals.py"
QUESTIONS = ROOT / "tools/manual_questions.jsonl"


def run(server, config, folder, *arguments):
    collection = json.loads(config.read_text())["retrieval"]["collection"]
    command = [sys.executable, SCRIPT, "--server", server.url, "--collection", collection, "--retro-index", BUILD / "retro-index",
               "--out", folder / "page.md", "--max-tokens", "12", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_quotation_is_six_words_that_the_question_lacks():
    manual = "-a, --all\n    do not ignore entries starting with a dot.\n    Sort entries by name."
    assert ask_manuals.longest_quote("Do NOT ignore\nentries, starting with b", manual, "q") == "do not ignore entries starting with"
    assert ask_manuals.longest_quote("they do not ignore entries starting with a dot!", manual, "q") == "do not ignore entries starting with a dot"
    assert ask_manuals.longest_quote("do not ignore entries starting", manual, "q") == ""
    assert ask_manuals.longest_quote("do not ignore entries starting with", manual, "Do not ignore entries starting with?") == ""


def test_three_times_the_same_is_a_loop():
    line = "a process of eight words in one row "
    assert not ask_manuals.loops(line * 2) and ask_manuals.loops(line * 3)


def test_the_page_is_what_the_server_answers(server, config, tmp_path):
    name = sorted(p.name for p in (ROOT / "tests/texts").glob("*.md"))[0]
    (tmp_path / "questions").write_text(json.dumps({"manual": name, "question": "What is a chunk?"}) + "\n")
    done = run(server, config, tmp_path, "--questions", tmp_path / "questions")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.md").read_text()
    for enabled, title in ((True, "With retrieval"), (False, "Without")):
        answer = server.complete("Question: What is a chunk?\nAnswer:", max_tokens=12, temperature=0, retrieval={"enabled": enabled})
        text = " ".join(answer["choices"][0]["text"].strip().split("\n\n")[0].split())
        assert re.search(rf"^\*\*{title}\*\* \(.*\): {re.escape(text)}$", page, re.MULTILINE)
    assert done.stdout.startswith("1 questions: manual read ")


def test_a_manual_that_is_not_there_is_named(server, config, tmp_path):
    done = run(server, config, tmp_path)
    assert done.returncode == 1 and "0 documents are named" in done.stderr


def test_the_questions_that_ship():
    records = ask_manuals.read_questions(QUESTIONS)
    assert len(records) == len({r["question"] for r in records}) == 20
    assert all(re.fullmatch(r"[a-z_-]+\.[12]\.gz", r["manual"]) for r in records)
