"""PDFs that were made up: what is read of them is right, and hostile ones harm nothing and nobody."""
import functools
import json
import pathlib
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import hostile  # noqa: E402
import layouts  # noqa: E402
import make_pdf  # noqa: E402
import score  # noqa: E402


@functools.cache
def made_of(function):
    return function()


@pytest.mark.parametrize("function", layouts.CASES, ids=lambda function: function.__name__)
def test_layout(function, tmp_path):
    got = score.score(made_of(function), tmp_path)
    faults = {name: got[name] for name in ("wrong", "present", "lost", "kinds", "bad") if got[name]}
    assert not faults, got["text"]


def read(tmp_path, content, name="case.pdf"):
    path = tmp_path / name
    path.write_bytes(content)
    began = time.monotonic()
    answer = score.read(path)
    assert time.monotonic() - began < 120
    return answer


def test_password_is_called_one(tmp_path):
    answer = read(tmp_path, hostile.locked())
    assert "needs a password" in answer["error"] and not answer["documents"]


def test_slow_page_is_lost_alone(tmp_path):
    content, sentences = hostile.forms()
    answer = read(tmp_path, content)
    document = answer["documents"][0]
    assert document["losses"].startswith("page 2: ") and document["losses"].count("\n") == 1, answer
    text = score.flat(document["text"])
    assert all(one in text for one in sentences), text


def test_bomb(tmp_path):
    answer = read(tmp_path, hostile.bomb())
    assert answer["error"] or not answer["documents"][0]["text"].strip(), answer["error"]


def test_pages_in_a_ring(tmp_path):
    answer = read(tmp_path, hostile.many_pages())
    assert "no text" in answer["error"] or "damaged" in answer["error"] or answer["documents"], answer


def test_huge_page(tmp_path):
    answer = read(tmp_path, hostile.huge())
    assert "Words on a page of two hundred inches." in answer["documents"][0]["text"], answer
    assert answer["documents"][0]["boxes"][0][3:5] == [14400, 14400]


def test_table_of_objects_is_gone(tmp_path):
    content, sentences = hostile.without_table()
    text = score.flat(read(tmp_path, content)["documents"][0]["text"])
    assert all(one in text for one in sentences)


def test_cut(tmp_path):
    answer = read(tmp_path, hostile.cut())
    assert "damaged" in answer["error"] or "nothing is on its pages" in answer["error"], answer


def test_pages_without_text_are_named(tmp_path):
    content, sentences = hostile.pictures()
    document = read(tmp_path, content)["documents"][0]
    assert all(one in score.flat(document["text"]) for one in sentences)
    lines = document["losses"].splitlines()
    assert len(lines) == 2 and lines[0].startswith("page 2: ") and lines[1].startswith("page 3: "), lines


def test_pages_of_long_file_are_all_there(tmp_path):
    """Several processes share the pages; their order is kept."""
    pages = []
    for i in range(60):
        page = make_pdf.Page()
        page.text(72, 90, f"Leaf {i} tells of number {i * i}.", 11)
        pages.append(page)
    document = read(tmp_path, make_pdf.write(pages))["documents"][0]
    assert [line for line in document["text"].splitlines() if line] == [f"Leaf {i} tells of number {i * i}." for i in range(60)]
    assert [box[2] for box in document["boxes"]] == list(range(1, 61))


def test_title_and_words_twice(tmp_path):
    page = make_pdf.Page()
    page.text(72, 90, "Once.", 11)
    document = read(tmp_path, make_pdf.write([page], title="A report"))["documents"][0]
    assert document["title"] == "A report" and document["text"].count("Once.") == 1


def test_read_file_says_how_it_is_used():
    run = subprocess.run([score.READ], capture_output=True, text=True)
    assert run.returncode == 2 and "usage" in run.stderr
    assert json.dumps(run.stdout) == '""'
