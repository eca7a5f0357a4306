"""A document opens at a passage: from a citation, a source and a hit of a search, by pointer and by keyboard, as a page
with the passage framed, and as text with it marked."""
import json
import struct
import sys
import zlib

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import DOCUMENTS, ROOT
from test_documents import shared, told  # noqa: F401 (a fixture)

sys.path.insert(0, str(ROOT / "tests/reading"))
from make_pdf import Page, write  # noqa: E402

QUESTION = "open() returns a file descriptor, a small"


def make_png(width, height):
    def part(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + b"\xff" * width for _ in range(height))
    return (b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
            + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b""))


def paged(hit):
    """A hit as it would be of a PDF."""
    return {**hit, "page": 3, "boxes": [{"page": 3, "page_width": 200, "page_height": 400, "rects": [[20, 40, 120, 60]]}]}


def find(one, words):
    one.page.click("#open-documents")
    one.page.fill("#documents-search", words)
    one.page.keyboard.press("Enter")
    one.until("document.querySelectorAll('#passages li').length > 0")


@pytest.fixture
def pages(visit, chat_server):
    """A visit to a server whose hits stand on pages, which are drawn by the test."""
    one, asked = visit(chat_server), []

    def search(route):
        answer = route.fetch().json()
        route.fulfill(json={**answer, "data": [paged(hit) for hit in answer["data"]]})

    def draw(route):
        asked.append(int(route.request.url.rsplit("/", 1)[1]))
        route.fulfill(body=make_png(400, 800), headers={"Content-Type": "image/png", "X-Page-Count": "4"})

    one.page.route("**/v1/retrieval/search?*", search)
    one.page.route("**/v1/documents/*/pages/*", draw)
    one.asked = asked
    return one


def test_a_citation_opens_its_document_by_two_clicks(visit, chat_server):
    one = visit(chat_server)
    one.ask("cite the bridge")
    one.page.locator(".cite").first.click()
    one.page.locator("aside li.open .open-source").click()
    one.until("document.querySelector('#reader mark') !== null")
    (passage,) = {neighbor["text"].strip() for neighbor in [one.page.evaluate(
        "({text: document.querySelector('aside li.open .passage').textContent})")]}
    marked = "".join(one.page.locator("#reader mark").all_text_contents())
    assert marked.split() and passage.split()[-1] in marked
    assert one.page.locator("#reader-views").is_hidden()


def test_a_citation_opens_its_document_by_two_keys(visit, chat_server):
    one = visit(chat_server)
    one.ask("cite the bridge")
    one.page.locator(".cite").first.focus()
    one.page.keyboard.press("Enter")
    one.page.keyboard.press("Enter")
    one.until("document.querySelector('#reader mark') !== null")
    assert one.page.evaluate("document.activeElement.id") == "reader-body"
    one.page.keyboard.press("Escape")
    assert one.page.locator("#reader").is_hidden()
    assert one.page.evaluate("document.activeElement.className") == "open-source"
    one.page.keyboard.press("Escape")
    assert one.page.evaluate("document.activeElement === document.querySelector('.cite')")


def test_every_citation_leads_to_its_source_and_back(visit, chat_server):
    """By two keys there, by two back, wherever the citation stands."""
    one = visit(chat_server)
    one.ask("cite the bridge")
    n = one.page.locator(".cite").count()
    assert n >= 3
    for i in range(n):
        one.page.locator(".cite").nth(i).focus()
        one.page.keyboard.press("Enter")
        one.page.keyboard.press("Enter")
        one.until("document.querySelector('#reader mark') !== null")
        assert one.page.evaluate("document.activeElement.id") == "reader-body"
        one.page.keyboard.press("Escape")
        one.until("!document.querySelector('#reader').open")
        one.page.keyboard.press("Escape")
        assert one.page.evaluate(f"document.activeElement === document.querySelectorAll('.cite')[{i}]")


def test_a_hit_opens_at_its_line(visit, chat_server):
    one = visit(chat_server)
    find(one, "the opening of the bridge")
    one.page.locator("#passages button").first.click()
    one.until("document.querySelector('#reader mark') !== null")
    lines = DOCUMENTS["bridges.md"].splitlines()
    marked = one.page.locator("#reader li:has(mark)").first
    number = marked.evaluate("e => [...e.parentElement.children].indexOf(e) + e.parentElement.start")
    assert marked.text_content() == lines[number - 1]
    assert one.page.locator("#reader li").all_text_contents() == lines
    assert Axe().run(one.page).response["violations"] == []


def test_marks_of_documents_are_text(visit, chat_server):
    one = visit(chat_server)
    find(one, "leek soup with potatoes")
    one.page.locator("#passages button").first.click()
    one.until("document.querySelector('#reader mark') !== null")
    assert one.page.locator("#reader li").all_text_contents() == DOCUMENTS["soup.md"].splitlines()
    assert one.page.locator("#reader :is(img, script)").count() == 0


def test_a_page_is_shown_with_the_passage_framed(pages):
    find(pages, "the opening of the bridge")
    pages.page.locator("#passages button").first.click()
    pages.until("document.querySelector('#reader img')?.complete")
    assert pages.asked == [3] and pages.text("#reader-page") == "Page 3 of 4"
    image, frame = (pages.page.locator(f"#reader {of}").bounding_box() for of in ("img", ".frame"))
    of = [(frame["x"] - image["x"]) / image["width"], (frame["y"] - image["y"]) / image["height"],
          frame["width"] / image["width"], frame["height"] / image["height"]]
    assert of == pytest.approx([20 / 200, 40 / 400, 100 / 200, 20 / 400], abs=0.01)
    assert pages.page.locator("#reader img").get_attribute("alt") == "Page 3 of Bridges"
    assert Axe().run(pages.page).response["violations"] == []
    pages.page.keyboard.press("ArrowRight")
    pages.until("document.querySelector('#reader-page').textContent === 'Page 4 of 4'")
    assert pages.page.locator(".frame").count() == 0 and pages.page.locator("#reader-after").is_disabled()
    pages.page.keyboard.press("ArrowRight")
    pages.page.click("#reader-before")
    pages.until("document.querySelector('.frame') !== null")
    assert pages.asked == [3, 4, 3]
    pages.page.check("#reader-views [value=text]", force=True)
    pages.until("document.querySelector('#reader mark') !== null")


def test_a_real_pdf_opens_at_its_page(visit, shared, start, folder):  # noqa: F811
    """From the file that is added to the page that the server draws."""
    one, page = visit(start(shared, "retrieval.keep_files=copy")), Page(crop=(50, 40, 560, 800))
    page.text(100, 150, "The zebra measures the copper lantern near the quarry.", 11)
    (folder / "zebra.pdf").write_bytes(write([Page(), page]))
    one.page.click("#open-documents")
    one.page.set_input_files("#upload-files", [folder / "zebra.pdf"])
    told(one, "1 of 1 file added.")
    one.page.click("#documents button.main")
    find(one, "a zebra measures a copper lantern")
    one.page.locator("#passages button", has_text="zebra").first.click()
    one.until("document.querySelector('#reader img')?.naturalWidth === 1020")
    assert one.text("#reader-page") == "Page 2 of 2"
    image, frame = (one.page.locator(f"#reader {of}").first.bounding_box() for of in ("img", ".frame"))
    assert (frame["x"] - image["x"]) / image["width"] == pytest.approx(50 / 510, abs=0.01)
    assert (frame["y"] - image["y"]) / image["height"] == pytest.approx(101 / 760, abs=0.02)


def test_a_page_that_is_not_drawn_is_text(pages):
    pages.forgives = "status of 404"
    words = "the file is not kept (option retrieval.keep_files)"
    pages.page.route("**/v1/documents/*/pages/*", lambda route: route.fulfill(
        status=404, json={"error": {"message": words, "code": "not_kept"}}))
    find(pages, "the opening of the bridge")
    pages.page.locator("#passages button").first.click()
    pages.until("document.querySelector('#reader mark') !== null")
    assert pages.text("#reader-told") == f"The page is not shown: {words}"
    assert pages.page.locator("#reader-views [value=text]").is_checked()


def test_a_passage_that_moved_is_found(visit, chat_server):
    one = visit(chat_server)
    text = DOCUMENTS["bridges.md"]

    def answer(changed):
        one.page.unroute("**/v1/documents/*")
        one.page.route("**/v1/documents/*", lambda route: route.fulfill(json={"text": changed}))

    find(one, "the opening of the bridge")
    first = one.page.locator("#passages button").first
    answer(f"ä new preface.\n\n{text}")
    first.click()
    one.until("document.querySelector('#reader-told').textContent.includes('stands elsewhere now')")
    assert one.page.locator("#reader mark").count() > 0
    one.page.keyboard.press("Escape")
    answer("Nothing of it is left.\n")
    first.click()
    one.until("document.querySelector('#reader-told').textContent.includes('no more')")
    assert one.page.locator("#reader mark").count() == 0


def test_a_long_text_is_shown_around_the_passage(visit, chat_server):
    one = visit(chat_server)
    lines = [f"line {i} of many" for i in range(1, 20001)]
    whole = "\n".join(lines)
    start = whole.index("line 10000 ")
    hit = {"id": "x", "document": "long.txt", "title": "", "text": lines[9999], "start": start, "similarity": 0.5,
           "end": start + len(lines[9999]), "page": None, "line": 10000, "heading": [], "boxes": []}
    one.page.route("**/v1/retrieval/search?*", lambda route: route.fulfill(json={"data": [hit]}))
    one.page.route("**/v1/documents/x", lambda route: route.fulfill(json={"text": whole}))
    find(one, "anything")
    assert one.text("#passages .title") == "long.txt" and "long.txt" not in one.text("#passages .place")
    one.page.locator("#passages button").first.click()
    one.until("document.querySelector('#reader mark') !== null")
    assert one.text("#reader mark") == lines[9999]
    shown = one.page.locator("#reader li").count()
    assert 1000 < shown < 4000
    for name in ("Earlier", "Later"):
        one.page.get_by_role("button", name=name).click()
    texts = one.page.locator("#reader li").all_text_contents()
    first = one.page.locator("#reader ol").evaluate("e => e.start")
    assert len(texts) > 1.8 * shown and texts == lines[first - 1:first - 1 + len(texts)]


@pytest.mark.parametrize("width", [360, 1280])
def test_the_reader_fits(visit, chat_server, width):
    one = visit(chat_server, viewport={"width": width, "height": 740})
    find(one, "the opening of the bridge")
    one.page.locator("#passages button").first.click()
    one.until("document.querySelector('#reader mark') !== null")
    assert one.page.evaluate("document.documentElement.scrollWidth") == width
    box = one.page.locator("#reader").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= width
    assert Axe().run(one.page).response["violations"] == []
    assert json.loads(one.page.evaluate("JSON.stringify(location.hash)")) == ""
