"""Where the parts of the page stand, in each state and at two widths, compared with what layout.json has.

Pictures of the page would differ with each machine's fonts and their smoothing, and no fonts are committed. So boxes are
compared: the left edge and the width of each part, within some pixels, and which parts stand above which. Texts are made
up, so that they are the same everywhere. RETRO_LAYOUT=write makes the file anew, to be looked at and committed."""
import json
import os
import pathlib
import time

import pytest
from test_markdown import BLOCKS, answer
from test_reader import find, make_png, paged

KEPT = pathlib.Path(__file__).with_name("layout.json")
PATIENCE = 30  # seconds
NEAR = 6  # pixels: letters are a little wider or narrower elsewhere
PARTS = ("header, main, #welcome, #ask, .field, #shelf, article, .question, .answers, .answer, .text, .rich > *, aside, aside li, "
         ".open .passage, dialog[open], dialog[open] > *, #folders > li, #reader-sheet > *, #documents-list > li, #passages > li, #doors > li")

# The parts that are seen, in the order of the document. Those within others come after them.
LOOK = """(parts) => [...document.querySelectorAll(parts)].filter((e) => e.checkVisibility() && e.getClientRects().length > 0)
  .map((e) => {
    const { x, y, width, height } = e.getBoundingClientRect();
    const name = e.id ? `#${e.id}` : [e.localName, ...[...e.classList].filter((one) => !["flash", "on"].includes(one))].join(".");
    return { name, x, y, width, height };
  })"""

NEIGHBOR = {"number": 1, "document": "manuals/rails.md", "title": "Rails", "start": 0, "end": 61, "page": None, "line": 3,
            "heading": ["Rails"], "similarity": 0.75, "text": "Two rails carry a train. They are made of steel, and are bolted to sleepers.",
            "boxes": [], "id": "r"}
SCAN = {"paths": ["/srv/manuals"], "followed": True, "time": 1700000000, "files": 12, "not_read": 3, "n_skipped": 2, "skipped": [
    {"path": "/srv/manuals/log.txt", "reason": "70000000 bytes, the limit is 67108864", "remedy": "read larger files: --max-file-bytes N"},
    {"path": "/srv/manuals/" + "very-long-" * 12 + ".pdf", "reason": "empty: no text in it", "remedy": None}]}


def begin(one):
    pass


def write_answer(one):
    at = BLOCKS.index("safe")
    answer(one, BLOCKS.replace("ways", "ways [1]"), retrieval=[{"chunk": 0, "position": 0, "neighbors": [NEIGHBOR]}],
           citations=[{**NEIGHBOR, "index": 0, "answer_start": at + 11, "answer_end": at + 14}])


def follow_citation(one):
    write_answer(one)
    one.page.locator(".cite").click()


def open_settings(one):
    one.page.click("#open-settings")


def open_shelf(one):
    write_answer(one)
    one.page.click("#open-shelf")


def open_documents(one):
    one.page.click("#open-documents")
    one.until("document.querySelectorAll('#documents-list li').length === 3")


def search_texts(one):
    one.page.route("**/v1/retrieval/search?*", lambda route: route.fulfill(json={"data": [NEIGHBOR]}))
    find(one, "rails")


def read_text(one):
    one.page.route("**/v1/documents/r", lambda route: route.fulfill(json={"text": f"# Rails\n\n{NEIGHBOR['text']}\n"}))
    search_texts(one)
    one.page.locator("#passages button").click()
    one.until("document.querySelector('#reader mark') !== null")


def read_page(one):
    one.page.route("**/v1/retrieval/search?*", lambda route: route.fulfill(json={"data": [paged(NEIGHBOR)]}))
    one.page.route("**/v1/documents/*/pages/*", lambda route: route.fulfill(
        body=make_png(400, 800), headers={"Content-Type": "image/png", "X-Page-Count": "4"}))
    find(one, "rails")
    one.page.locator("#passages button").click()
    one.until("document.querySelector('#reader img')?.complete")


def connect(one):
    one.page.click("#open-clients")
    one.until("document.querySelectorAll('#clients details').length > 3")


def fail(one):
    one.forgives = "status of 503"
    one.page.route("**/v1/chat/completions", lambda route: route.fulfill(status=503, json={"error": {"message": "Busy.", "code": "busy"}}))
    one.ask("Hello")


def edit_question(one):
    write_answer(one)
    one.page.click(".edit")


def rename_conversation(one):
    open_shelf(one)
    one.page.click("#shelf .more")
    one.page.click("#shelf .rename")


def ask_delete(one):
    open_documents(one)
    one.page.locator("#documents-list .delete").first.click()


def see_skipped(one):
    one.page.route("**/v1/scans", lambda route: route.fulfill(json={"data": [SCAN]}))
    open_documents(one)
    one.page.click("#folders summary")


STATES = {state.__name__: state for state in (
    begin, write_answer, edit_question, follow_citation, open_settings, open_shelf, rename_conversation, open_documents,
    ask_delete, see_skipped, search_texts, read_text, read_page, connect, fail)}


def above(parts):
    """Pairs of neighbours in the document of which one ends before the other begins, by their places in the list."""
    return [parts[i]["y"] + parts[i]["height"] <= parts[i + 1]["y"] + 1 for i in range(len(parts) - 1)]


def describe(parts):
    return {"parts": [[part["name"], round(part["x"]), round(part["width"])] for part in parts], "above": above(parts)}


def wait_for_parts(one, names):
    """The parts once they have these names, or as they stand after the time: a list that the server is still being asked for comes
    later than the dialog that shows it."""
    until = time.monotonic() + PATIENCE
    now = describe(one.page.evaluate(LOOK, PARTS))
    while [part[0] for part in now["parts"]] != names and time.monotonic() < until:
        one.page.wait_for_timeout(20)
        now = describe(one.page.evaluate(LOOK, PARTS))
    return now


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("state", STATES)
def test_parts_stand_where_they_stood(visit, chat_server, state, width):
    one = visit(chat_server, viewport={"width": width, "height": 800}, reduced_motion="reduce")
    one.set(system="")
    STATES[state](one)
    one.until("!document.querySelector('.flash')")
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    name = f"{state} {width}"
    if os.environ.get("RETRO_LAYOUT") == "write":
        now = describe(one.page.evaluate(LOOK, PARTS))
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in sorted({**kept, name: now}.items())]
        KEPT.write_text("{" + ",\n".join(lines) + "}\n")
        return
    was = kept[name]
    now = wait_for_parts(one, [part[0] for part in was["parts"]])
    assert one.page.evaluate("document.documentElement.scrollWidth") == width
    assert [part[0] for part in now["parts"]] == [part[0] for part in was["parts"]]
    for part, old in zip(now["parts"], was["parts"]):
        assert abs(part[1] - old[1]) <= NEAR and abs(part[2] - old[2]) <= NEAR, (part, old)
    assert now["above"] == was["above"]
