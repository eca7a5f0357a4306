"""Rectangles of passages: in results of a search, in answers, and for nobody who did not ask."""
import pathlib
import sys

import pytest

from test_documents import call, upload

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "reading"))
from make_pdf import Page, write  # noqa: E402

LINES = ["The zebra measures the copper lantern near the", "northern quarry and carries it to the harbour."]


@pytest.fixture()
def served(start, folder):
    server = start(f"retrieval.collection={folder}")
    page = Page(crop=(50, 40, 560, 800))
    for i, line in enumerate(LINES):
        page.text(100, 150 + 13 * i, line, 11)
    upload(server, [("file", "zebra.pdf", write([Page(), page]))])
    return server


def found(server, **more):
    hits = call(server, "POST", "/v1/retrieval/search", {"query": " ".join(LINES), "k": 3, **more})["data"]
    return hits, next(hit for hit in hits if hit["document"] == "zebra.pdf")


def check(boxes):
    assert len(boxes) == 1 and boxes[0]["page"] == 2
    assert (boxes[0]["page_width"], boxes[0]["page_height"]) == (510, 760)
    rects = boxes[0]["rects"]
    assert len(rects) == 2, rects
    for i, (left, top, right, bottom) in enumerate(rects):
        assert abs(left - 50) < 1 and 250 < right < 320
        assert top < 150 + 13 * i - 40 - 5 < bottom and bottom - top < 16


def test_search(served):
    _, hit = found(served)
    assert "boxes" not in hit and hit["page"] == 2
    hits, hit = found(served, boxes=True)
    check(hit["boxes"])
    assert all(other["boxes"] == [] for other in hits if not other["document"].endswith(".pdf"))
    asked = served.request("GET", "/v1/retrieval/search?q=zebra+copper+lantern&k=1&boxes=true").json()["data"]
    check(asked[0]["boxes"])
    call(served, "POST", "/v1/retrieval/search", {"query": "a", "boxes": "yes"}, expect=400)


def test_answers(served):
    body = {"prompt": " ".join(LINES), "max_tokens": 2, "temperature": 0, "retrieval": {"k": 2, "boxes": True}}
    told = call(served, "POST", "/v1/completions", body)["retrieval"]
    neighbors = [hit for entry in told for hit in entry["neighbors"]]
    assert neighbors and all("boxes" in hit for hit in neighbors)
    body["retrieval"] = {"neighbors": ["A text of the request."], "boxes": True}
    told = call(served, "POST", "/v1/completions", body)["retrieval"]
    assert all(hit.get("boxes") is None for entry in told for hit in entry["neighbors"])
    body["retrieval"] = {"k": 2}
    told = call(served, "POST", "/v1/completions", body)["retrieval"]
    assert not any("boxes" in hit for entry in told for hit in entry["neighbors"])
