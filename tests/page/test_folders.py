"""Folders on the page: which is watched, and what of it was skipped, why, and what helps."""
import json
import signal
import subprocess

import pytest
from conftest import BUILD, EVIL

LOCKED = f"locked {EVIL.replace('/', '')}.docx"


@pytest.fixture
def followed(folder, chat_config, request):
    """A configuration whose collection follows a folder with a document that cannot be read."""
    name = f"followed-{request.node.name}"
    notes = folder / name / "notes"
    notes.mkdir(parents=True)
    (notes / "ferry.md").write_text("# Ferry\n\nThe ferry leaves at half past seven.\n")
    (notes / LOCKED).write_bytes(b"no archive at all")
    (notes / "drawing.dwg").write_bytes(b"\0")
    config = json.loads(chat_config.read_text())
    config["retrieval"]["collection"] = str(folder / name / "collection")
    path = folder / name / "retro.json"
    path.write_text(json.dumps(config))
    done = subprocess.run([BUILD / "retro-index", "build", "--out", folder / name / "collection", "--config", path, notes],
                          capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    watch = subprocess.Popen([BUILD / "retro-index", "watch", "--config", path, folder / name / "collection", notes],
                             stderr=subprocess.PIPE, text=True)
    for line in watch.stderr:
        if "watching" in line:
            break
    yield path, notes, watch
    watch.kill()
    watch.wait()


def shown(one):
    one.page.click("#open-documents")
    one.until("document.querySelectorAll('#folders > li').length === 1")
    return one.page.locator("#folders > li > .title").inner_text(), one.page.locator("#folders > li > .place").inner_text()


def test_what_was_skipped_is_shown_with_a_reason(visit, start, followed):
    path, notes, watch = followed
    one = visit(start(path))
    title, place = shown(one)
    assert title == str(notes)
    assert place.startswith("watched · last read ") and place.endswith("· 2 files · 1 skipped · 1 of other kinds or hidden")
    one.page.click("#folders summary")
    (item,) = one.page.locator("#folders li li").all()
    assert item.locator(".title").inner_text() == str(notes / LOCKED)
    assert len(item.locator(".reason").inner_text()) > 10
    assert one.page.locator("#documents img").count() == 0
    watch.send_signal(signal.SIGTERM)
    assert watch.wait(60) == 0
    one.page.keyboard.press("Escape")
    one.until("!document.querySelector('#documents').open")
    one.page.click("#open-documents")
    one.until("document.querySelector('#folders .place')?.textContent.startsWith('not watched')")


def test_what_is_mended_is_skipped_no_more(visit, start, followed):
    path, notes, _ = followed
    one = visit(start(path))
    (notes / LOCKED).unlink()
    one.until("fetch('v1/scans').then((reply) => reply.json()).then(({ data }) => data[0].n_skipped === 0)")
    _, place = shown(one)
    assert "skipped" not in place and one.page.locator("#folders details").is_hidden()


def test_who_may_not_change_documents_sees_no_paths(visit, start, followed):
    path, notes, _ = followed
    one = visit(start(path, "retrieval.documents=read"))
    title, place = shown(one)
    assert title == "A folder of the server" and "1 skipped" in place
    assert one.page.locator("#folders details").is_hidden() and str(notes) not in one.page.content()
