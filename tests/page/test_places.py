"""Where a passage stands, in words, with real files: a manual's section, a document without a title, the start of a
sentence."""
import re

import pytest
from conftest import ROOT, write_config
from test_reader import find

MANUAL = """.TH FROB 3
.SH NAME
frob \\- turn a handle
.SH DESCRIPTION
The function frob() turns the handle that it is given by a quarter. A handle is made by mkfrob(). While it turns, other
threads wait. Handles of several machines may turn at the same time, where their axes do not touch each other, and a
machine without a handle is passed over. The angle is kept in the machine. Where the machine is switched off the angle is
the one of the last turn. A handle that is broken does not turn, and nothing else of the machine does. The handle of a
machine may be taken off, oiled and put back, which keeps the angle.
.SH RETURN VALUE
On success frob() returns the number of teeth that the wheel has gone on. When the wheel is stuck it returns zero. On an
error it returns minus one, and sets errno to say which error came up. The number of teeth is never larger than twelve.
.SH ERRORS
EBADF: the handle is none.
"""
PLAIN = ("the first line of a list that nobody gave a name, and that goes on for a while. Apples are kept in the cellar in the north. "
         "Pears are kept in the attic. Plums are dried in the sun. ") * 6


@pytest.fixture(scope="module")
def library(folder, start):
    (folder / "library").mkdir()
    (folder / "library/frob.3").write_text(MANUAL)
    (folder / "library/list of fruit.txt").write_text(PLAIN)
    return start(write_config(folder, "placed", ROOT / "models/retro-docs", folder / "library"))


@pytest.fixture
def one(visit, library):
    return visit(library)


def passages(one, words):
    if one.page.locator("#documents").is_visible():
        one.page.click("#documents button.main")
    find(one, words)
    one.until("document.querySelector('#documents-told').textContent.includes('nearest first')")
    items = one.page.locator("#passages li").all()
    return [(item.locator(".title").inner_text(), item.locator(".place").inner_text(), item.locator(".passage").inner_text()) for item in items]


def test_the_heading_is_the_one_that_a_passage_stands_under(one):
    title, place, text = passages(one, "frob returns the number of teeth that the wheel has gone on")[0]
    assert "number of teeth" in text
    assert " · RETURN VALUE · " in place and "DESCRIPTION" not in place
    (first, *_) = passages(one, "the handle may be taken off and oiled")
    assert " · DESCRIPTION · " in first[1]


def test_a_passage_begins_with_a_sentence(one):
    for _, _, text in passages(one, "where are pears and plums kept") + passages(one, "turn the handle of the machine"):
        assert re.match(r"\W*[A-Z]|the first line|frob", text), text


def test_the_whole_passage_is_a_press_away(one):
    one.ask("The apples and pears are kept in the")
    items = one.page.locator("aside li")
    assert items.locator(".lead").count() > 0
    for i in range(items.count()):
        lead = items.nth(i).locator(".lead")
        if lead.count() == 0:
            continue
        assert lead.is_hidden()
        items.nth(i).locator(".unfold").click()
        assert lead.is_visible() and not re.match(r"\s*[A-Z]", lead.inner_text())


def test_without_a_title_the_name_stands_once(one):
    name = "library/list of fruit.txt"
    named = [place for title, place, _ in passages(one, "where are pears kept") if title == name]
    assert named and not any(name in place for place in named)
    one.page.locator("#passages button", has_text=name).first.click()
    one.until("document.querySelector('#reader mark') !== null")
    assert one.text("#reader-title") == name and name not in one.text("#reader-place")
    one.page.keyboard.press("Escape")
    one.page.fill("#documents-search", "fruit")
    one.until("document.querySelectorAll('#documents-list li').length === 1")
    assert one.text("#documents-list .title") == name and name not in one.text("#documents-list .place")
    one.page.keyboard.press("Escape")
    one.page.keyboard.press("Escape")
    one.ask("The apples and pears are kept in the")
    assert name in one.page.locator("aside li .title").all_inner_texts()
    for item in one.page.locator("aside li").all():
        if item.locator(".title").inner_text() == name:
            assert name not in item.locator(".place").inner_text()


def test_an_example_is_asked(visit, start, folder):
    """With a model that has no chat template, as the demo's: its examples come up, and their answers have sources."""
    (folder / "demo").mkdir()
    (folder / "demo/open.2").write_text(
        ".TH OPEN 2\n.SH RETURN VALUE\nOn success, open() returns the new file descriptor, a small, nonnegative integer that is an "
        "index to an entry in the process's table of open file descriptors. On error, \\-1 is returned and errno is set.\n")
    one = visit(start(write_config(folder, "demonstrated", ROOT / "models/retro-docs", folder / "demo")))
    one.page.check("input[value=chat]", force=True)
    one.page.get_by_role("button", name="What does open() return?").click()
    one.wait()
    assert one.text(".question") == "What does open() return?" and one.text(".written").strip()
    assert one.page.locator("aside li").count() > 0 and one.page.locator("aside li .place").first.inner_text().count("RETURN VALUE") == 1
    one.page.check("input[value=complete]", force=True)
    one.page.click("#fresh")
    one.page.get_by_role("button", name=re.compile("^open\\(\\) returns")).click()
    one.wait()
    assert one.text(".written").strip()
