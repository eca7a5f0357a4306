"""Versions of questions and answers: edited, written again, paged through, and kept."""
import json

import pytest
from axe_playwright_python.sync_playwright import Axe
from test_conversations import database, deed, open_shelf, reload, wait_kept


@pytest.fixture
def one(visit, chat_server):
    one = visit(chat_server)
    one.set(system="")
    return one


def questions(one):
    """By text content: the page skips the layout of what is out of sight, and its inner text is empty then."""
    return one.page.locator(".question").all_text_contents()


def versions(one, n=0):
    return one.page.locator(".versions").nth(n).text_content().strip("‹› \n")


def edit(one, n, text):
    entry = one.page.locator("article").nth(n)
    entry.locator(".edit").click()
    entry.locator(".editing textarea").fill(text)
    one.page.keyboard.press("Enter")
    one.wait()


def test_an_edited_question_begins_a_branch(one):
    one.ask("First")
    one.ask("Second")
    edit(one, 0, "Another first")
    assert questions(one) == ["Another first"] and versions(one) == "2 of 2"
    assert [m["content"] for m in one.bodies()[-1]["messages"]] == ["Another first"]
    one.ask("Below it")
    one.page.locator(".earlier").first.click()
    assert questions(one) == ["First", "Second"] and versions(one) == "1 of 2"
    assert one.page.evaluate("document.activeElement.className") == "later"  # there is none before the first
    assert one.text("#spoken") == "Version 1 of 2"
    one.page.keyboard.press("Enter")
    assert questions(one) == ["Another first", "Below it"]
    one.ask("On")
    assert [m["content"] for m in one.bodies()[-1]["messages"]][::2] == ["Another first", "Below it", "On"]


def test_an_answer_is_written_again(one):
    one.set(seed=5)
    one.ask("First")
    one.ask("Second")
    for n in (2, 3):
        one.page.locator(".again").last.click()
        one.wait()
        assert questions(one) == ["First", "Second"] and versions(one, 1) == f"{n} of {n}"
    first, second = one.bodies()[1:3]
    assert first["messages"] == second["messages"] and first["seed"] == 5 and second["seed"] != 5
    assert one.page.locator("article").first.locator(".versions").is_hidden()


def test_branches_are_kept_and_exported(one):
    one.ask("First")
    edit(one, 0, "Another first")
    one.page.click(".earlier")
    wait_kept(one, 2)
    assert questions(one) == ["First"]
    database(one)  # waits for what the page writes there
    reload(one)
    assert questions(one) == ["First"] and versions(one) == "1 of 2"
    one.page.click(".later")
    assert questions(one) == ["Another first"]
    (head,) = database(one)["conversations"]
    assert head["size"] == 2
    open_shelf(one)
    with one.page.expect_download() as whole:
        deed(one, "First", ".json")
    turns = json.loads(whole.value.path().read_text())["turns"]
    assert [turn["question"] for turn in turns] == ["First", "Another first"] and {turn["parent"] for turn in turns} == {""}


def test_editing_is_left_by_escape(one):
    one.ask("First")
    one.page.click(".edit")
    one.page.keyboard.type("and no more")
    one.page.keyboard.press("Escape")
    assert questions(one) == ["First"] and one.page.locator(".editing").is_hidden()
    assert one.page.evaluate("document.activeElement.className") == "edit" and len(one.bodies()) == 1


def test_texts_have_versions_too(visit):
    one = visit()
    one.set(max_tokens=4)
    one.ask("A bridge")
    edit(one, 0, "A long bridge")
    assert one.text(".before") == "A long bridge" and one.bodies()[-1]["prompt"] == "A long bridge"
    one.page.click(".earlier")
    assert one.text(".before") == "A bridge"


def test_what_failed_is_asked_again_in_its_place(one):
    one.forgives = "net::ERR_FAILED"
    one.page.route("**/v1/chat/completions", lambda route: route.abort())
    one.ask("First")
    one.page.unroute("**/v1/chat/completions")
    one.page.get_by_role("button", name="Try again").click()
    one.wait()
    assert questions(one) == ["First"] and versions(one) == "2 of 2"
    one.page.click(".earlier")
    assert one.text(".measured") == "no answer came"


def test_copies_without_a_clipboard_of_its_own(visit, chat_server):
    one = visit.hear(chat_server, permissions=["clipboard-read"])
    one.page.add_init_script("window.board = navigator.clipboard;"
                             "Object.defineProperty(navigator, 'clipboard', { value: undefined });")
    one.open()
    one.ask("Hello there")
    one.page.click(".copy")
    one.until("document.querySelector('.reading').textContent === 'Copied.'")
    assert one.page.evaluate("board.readText()") == "Hello, world! Äö 🙂 bye..."
    assert one.page.evaluate("document.activeElement.className") == "copy"


@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_nothing(visit, chat_server, width):
    one = visit(chat_server, viewport={"width": width, "height": 740})
    one.ask("First")
    edit(one, 0, "Another first")
    one.page.click(".edit")
    assert Axe().run(one.page).response["violations"] == []
    assert one.page.evaluate("document.documentElement.scrollWidth") == width
