"""Documents on the page: listed, searched by name, added from files and by a drop, deleted after a question."""
import json
import subprocess

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import BUILD, EVIL

# Drops files as a browser does.
DROP = """([selector, files]) => {
  const data = new DataTransfer();
  for (const [name, text] of files) data.items.add(new File([text], name));
  document.querySelector(selector).dispatchEvent(
    new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: data }));
}"""


@pytest.fixture
def shared(chat_config, documents, folder, start, request):
    """A server with a collection that a test may change."""
    name = f"changed-{request.node.name.replace('[', '-').replace(']', '')}"
    config = json.loads(chat_config.read_text())
    config["retrieval"]["collection"] = str(folder / name)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(config))
    command = [BUILD / "retro-index", "build", "--out", folder / name, "--config", path, documents]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def one(visit, shared, start):
    return visit(start(shared))


def listed(one, *expected, kind="#documents-list .title"):
    one.until(f"JSON.stringify([...document.querySelectorAll('{kind}')].map((e) => e.textContent).sort()) === "
              + json.dumps(json.dumps(sorted(expected), separators=(",", ":"), ensure_ascii=False)))


def told(one, words):
    one.until(f"document.querySelector('#documents-told').textContent === {json.dumps(words)}")


SOUP = f"Soup {EVIL}"


def test_documents_are_listed_and_searched(visit, chat_server):
    one = visit(chat_server)
    one.page.click("#open-documents")
    listed(one, "Bridges", "Files", SOUP)
    assert one.text("#documents-count") == "3 documents, 8 passages."
    assert one.page.locator("#documents img").count() == 0
    one.page.fill("#documents-search", "BRIDG")
    listed(one, "Bridges")
    one.until("document.querySelector('#documents-count').textContent === '3 documents, 8 passages. 1 with these words.'")
    assert one.page.locator("#documents-list .place").inner_text() == "documents/bridges.md · 2 passages · 106 bytes"
    one.page.keyboard.press("Escape")
    one.page.keyboard.press("Escape")
    assert one.page.locator("#documents").is_hidden()


def test_long_lists_come_in_pages(visit, chat_server):
    one = visit(chat_server)
    asked = []

    def answer(route):
        asked.append(route.request.url.split("?")[1])
        first = 100 if "after=" in asked[-1] else 0
        data = [{"id": f"i{i}", "path": f"p{i}.md", "title": "", "chunks": 1, "bytes": 1} for i in range(first, first + 100)]
        route.fulfill(json={"documents": 200, "chunks": 200, "data": data, "has_more": first == 0})

    one.page.route("**/v1/documents?*", answer)
    one.page.click("#open-documents")
    one.until("document.querySelectorAll('#documents-list li').length === 100")
    one.page.click("#documents-more")
    one.until("document.querySelectorAll('#documents-list li').length === 200")
    assert asked == ["limit=100", "limit=100&after=i99"] and one.page.locator("#documents-more").is_hidden()
    one.page.fill("#documents-search", "p150")
    listed(one, "p150.md")
    assert asked[2:] == ["limit=1000", "limit=1000&after=i99"]


def test_files_are_added_one_after_the_other(one, folder):
    (folder / "note.md").write_text("# A note\n\nThe printer is on the third floor.\n")
    (folder / "bad.pdf").write_text("no PDF at all")
    one.page.click("#open-documents")
    listed(one, "Bridges", "Files", SOUP)
    one.page.set_input_files("#upload-files", [folder / "note.md", folder / "bad.pdf"])
    told(one, "1 of 2 files added.")
    words = one.page.locator("#uploads .words").all_inner_texts()
    assert words[0] == "added" and words[1].startswith("bad.pdf: ")
    assert one.page.locator("#uploads .failed").count() == 1
    listed(one, "A note", "Bridges", "Files", SOUP)
    posts = [request for request in one.requests if request.method == "POST"]
    assert [request.url.endswith("/v1/documents?wait=false") for request in posts] == [True, True]
    one.until("!document.querySelector('#facts').textContent.includes('8 passages')")


def test_a_job_is_followed_to_its_end(one, folder):
    """The page asks for the job until the server says how it ended."""
    (folder / "many.zip").write_bytes(b"any")
    answers = [{"status": "waiting", "files": {"done": 0, "total": 1}}, {"status": "running", "files": {"done": 1, "total": 4}},
               {"status": "done", "files": {"done": 4, "total": 4},
                "data": [{"effect": "added"}, {"effect": "failed", "error": {"message": "b.pdf: it needs a password"}}]}]
    seen = []

    def tell(route):
        seen.append(one.page.locator("#uploads .words").text_content())
        route.fulfill(json={"object": "job", "id": "j 1", **answers[min(len(seen), 2)]})

    one.page.route("**/v1/documents?wait=false", lambda route: route.fulfill(
        status=202, json={"object": "job", "id": "j 1", **answers[0]}))
    one.page.route("**/v1/jobs/j%201", tell)
    one.page.click("#open-documents")
    one.page.set_input_files("#upload-files", [folder / "many.zip"])
    told(one, "1 of 1 file added.")
    assert one.text("#uploads .words") == "added; b.pdf: it needs a password"
    assert len(seen) == 2


def test_a_job_that_fails_is_told(one, folder):
    (folder / "bad.zip").write_bytes(b"any")
    failed = {"object": "job", "id": "j", "status": "failed", "error": {"message": "bad.zip: it is no archive"}}
    one.page.route("**/v1/documents?wait=false", lambda route: route.fulfill(status=202, json=failed))
    one.page.click("#open-documents")
    one.page.set_input_files("#upload-files", [folder / "bad.zip"])
    told(one, "0 of 1 file added.")
    assert one.text("#uploads .words") == "bad.zip: it is no archive"
    assert one.page.locator("#uploads .failed").count() == 1


def test_files_are_dropped_and_deleted(one):
    one.page.click("#open-documents")
    one.page.evaluate(DROP, ["#documents h2", [[f"{EVIL.replace('/', '')}.txt", "The moon is far away."]]])
    told(one, "1 of 1 file added.")
    name = f"{EVIL}.txt"
    one.until("document.querySelectorAll('#documents-list li').length === 4")
    assert one.page.locator("#documents img").count() == 0 and one.page.locator("#pictures").is_hidden()
    remove = one.page.get_by_role("button", name=f"Delete {name}", exact=True)
    remove.click()
    one.page.keyboard.press("Escape")
    assert one.page.locator("#documents").is_visible() and one.page.locator(".sure:visible").count() == 0
    remove.click()
    one.page.keyboard.press("Enter")
    told(one, f"{name} is deleted.")
    listed(one, "Bridges", "Files", SOUP)


def test_a_document_that_is_gone_is_told(one):
    one.forgives = "status of 404"
    one.page.click("#open-documents")
    listed(one, "Bridges", "Files", SOUP)
    one.page.route("**/v1/documents/*", lambda route: (route.fetch(), route.continue_()))
    one.page.get_by_role("button", name="Delete Files").click()
    one.page.click(".yes:visible")
    one.until("document.querySelector('#documents-told').textContent.startsWith('Files: no document has the id')")


@pytest.mark.parametrize("allowed, words", [
    ("read", "this server's documents are not changed over HTTP (option retrieval.documents)"),
    ("off", "this server's documents are not shown (option retrieval.documents)")])
def test_the_server_says_what_is_not_allowed(visit, chat_config, start, allowed, words):
    one = visit(start(chat_config, f"retrieval.documents={allowed}"))
    one.forgives = "status of 403"
    one.page.click("#open-documents")
    if allowed == "read":
        listed(one, "Bridges", "Files", SOUP)
        one.page.get_by_role("button", name="Delete Files").click()
        one.page.click(".yes:visible")
        one.until(f"document.querySelector('#documents-told').textContent.includes({json.dumps(words)})")
    else:
        told(one, words)
    assert one.page.locator(".writes:visible").count() == 0 and one.page.locator("#documents-list .sure:visible").count() == 0


def test_nothing_is_shown_without_a_collection(visit, folder, start, chat_config):
    config = folder / "alone.json"
    config.write_text(json.dumps({"model": {"path": str(folder / "talker")}, "server": {"port": 0}}))
    one = visit(start(config))
    assert one.page.locator("#open-documents").is_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_nothing(visit, chat_server, scheme, width):
    one = visit(chat_server, color_scheme=scheme, viewport={"width": width, "height": 740})
    one.page.click("#open-documents")
    listed(one, "Bridges", "Files", SOUP)
    one.page.get_by_role("button", name="Delete Files").click()
    assert Axe().run(one.page).response["violations"] == []
    assert one.page.evaluate("document.documentElement.scrollWidth") == width
    box = one.page.locator("#documents").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= width
