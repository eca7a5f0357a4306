"""GET /v1/documents/ID/pages/N: a page of a PDF as a picture, for those who may read the document."""
import json
import pathlib
import struct
import sys
import urllib.parse

import pytest

from test_documents import call, index, upload
from test_kept_files import get, id_of
from test_keys import bearer, keys  # noqa: F401 (a fixture)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "reading"))
from make_pdf import Page, write  # noqa: E402


def make_file():
    page = Page(crop=(50, 40, 560, 800))
    page.text(100, 150, "The zebra measures the copper lantern.", 11)
    return write([Page(), page])


def page_of(identity, number):
    return f"/v1/documents/{urllib.parse.quote(identity, safe='')}/pages/{number}"


def size_of(png):
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", png[16:24])


@pytest.fixture()
def served(start, folder):
    return start(f"retrieval.collection={folder}", "retrieval.keep_files=copy")


def refusal(answer):
    status, headers, body = answer
    return status, json.loads(body)["error"]["message"], headers.get("X-Page-Count")


def test_pages_are_drawn(served):
    [said] = upload(served, [("file", "zebra.pdf", make_file())])["data"]
    status, headers, png = get(served, page_of(said["id"], 2))
    assert status == 200 and headers["Content-Type"] == "image/png" and headers["X-Page-Count"] == "2"
    assert headers["X-Content-Type-Options"] == "nosniff" and "sandbox" in headers["Content-Security-Policy"]
    assert size_of(png) == (510 * 2, 760 * 2)  # as its rectangles count: cropped
    assert refusal(get(served, page_of(said["id"], 3))) == (404, "zebra.pdf has 2 pages", "2")
    assert refusal(get(served, page_of(said["id"], 0)))[0] == 404
    for wrong in ("x", "-1", "1.5", "1234567", ""):
        assert get(served, page_of(said["id"], wrong))[0] == 404


def test_what_has_no_pages_says_why(served, start, folder):
    files = [("file", "note.md", b"# A note\n\nNothing to draw.\n"), ("file", "zebra.pdf", make_file())]
    note, zebra = upload(served, files)["data"]
    assert refusal(get(served, page_of(note["id"], 1)))[:2] == (404, "pages are drawn of PDFs alone")
    assert get(served, page_of("nobody", 1))[0] == 404
    call(served, "PUT", page_of("a", 3), {"text": "An id that is a page."}, expect=405)
    off = start(f"retrieval.collection={folder}")
    status, words, _ = refusal(get(off, page_of(zebra["id"], 1)))
    assert status == 404 and "keep_files" in words


def test_a_file_that_changed_is_refused(start, folder, tmp_path):
    file = tmp_path / "zebra.pdf"
    file.write_bytes(make_file())
    index("add", folder, file)
    server = start(f"retrieval.collection={folder}", "retrieval.keep_files=path")
    zebra = id_of(server, "zebra.pdf")
    assert get(server, page_of(zebra, 1))[0] == 200
    file.write_bytes(make_file() + b"%")
    status, _, body = get(server, page_of(zebra, 1))
    assert status == 409 and json.loads(body)["error"]["code"] == "file_changed"


def test_a_tenant_sees_the_pages_of_its_own(start, folder, keys):  # noqa: F811
    mine, other = (keys.add(name, filter={"eq": {"team": name}}) for name in ("mine", "other"))
    none = keys.add("none", documents="off")
    server = start(f"retrieval.collection={folder}", "retrieval.keep_files=copy", f"server.keys_file={keys.path}")
    body = (b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"zebra.pdf\"\r\n\r\n" + make_file()
            + b"\r\n--b--\r\n")
    reply = server.request("POST", "/v1/documents", body, {"Content-Type": "multipart/form-data; boundary=b", **bearer(mine)})
    page = page_of(reply.json()["data"][0]["id"], 1)
    assert get(server, page, bearer(mine))[0] == 200
    status, _, body = get(server, page, bearer(other))
    never = get(server, page_of("nobody", 1), bearer(other))
    assert status == never[0] == 404 and "zebra" not in body.decode()
    assert get(server, page, bearer(none))[0] == 403 and get(server, page)[0] == 401
