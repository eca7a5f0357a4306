"""Quotes on the page: links from the answer into its sources, by pointer and by keyboard, kept with the conversation."""
import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import DOCUMENTS


@pytest.fixture(scope="module")
def quoting_server(chat_config, start):
    return start(chat_config, "retrieval.quotes=true")


def marked(one):
    return ["".join(text.split()) for text in one.page.locator("aside mark").all_text_contents()]


def quoted(one):
    """The words of the first quote, which has a link in each block of the answer, without blanks."""
    return "".join("".join(one.page.locator(".quoted").all_text_contents()).split())


def test_a_quote_leads_to_its_words(visit, quoting_server):
    one = visit(quoting_server)
    one.set(system="", max_tokens=200)
    one.ask("quote the bridge")
    one.until("document.querySelector('.quoted') !== null")
    link = one.page.locator(".quoted").first
    words = quoted(one)
    assert any(words in "".join(text.split()) for text in DOCUMENTS.values())
    assert link.get_attribute("title").startswith("Quoted from source ")
    link.focus()
    one.page.keyboard.press("Enter")
    assert marked(one) == [words]
    assert one.page.evaluate("document.activeElement.closest('li').classList.contains('open')")
    assert one.page.evaluate("location.hash") == ""
    one.page.keyboard.press("Enter")
    one.until("document.querySelector('#reader mark') !== null")
    one.page.keyboard.press("Escape")
    one.until("!document.querySelector('#reader').open")
    one.page.keyboard.press("Escape")
    assert one.page.evaluate("document.activeElement === document.querySelector('.quoted')")
    assert marked(one) == [words]
    one.until("document.querySelector('.flash') === null")
    assert Axe().run(one.page).response["violations"] == []


def test_a_kept_quote_leads_to_its_words(visit, chat_server):
    """The setting of the page asks for quotes where the server's own option does not."""
    one = visit(chat_server)
    one.set(system="", max_tokens=200, quotes=True)
    one.ask("quote the bridge")
    one.until("document.querySelector('.quoted') !== null")
    assert one.bodies()[-1]["retrieval"]["quotes"] is True
    words = quoted(one)
    one.page.locator(".quoted").first.click()
    assert marked(one) == [words]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(visit, quoting_server, scheme):
    one = visit(quoting_server, color_scheme=scheme)
    one.set(system="", max_tokens=200)
    one.ask("quote the bridge")
    one.until("document.querySelector('.quoted') !== null")
    one.page.locator(".quoted").first.click()
    one.until("document.querySelector('.flash') === null")
    assert Axe().run(one.page).response["violations"] == []
