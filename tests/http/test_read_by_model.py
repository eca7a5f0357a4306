"""Pages of uploads that a model reads (extract.reader model), and the server itself as that model."""
import json
import subprocess
import sys

import pytest
from conftest import BUILD, ROOT, Server

from test_documents import call, upload
from test_found_pictures import QWEN, SEER

sys.path.insert(0, str(ROOT / "tests/reading"))
import scan_files  # noqa: E402
from page_model import PageModel  # noqa: E402


def two_pages(folder):
    pdf = scan_files.Pdf()
    for name in ("first", "second"):
        pdf.page(lines=[(72, 700, 11, f"The {name} page as it stands in the file.")])
    return pdf.write(folder / "two.pdf")


def sets(model, **more):
    values = {"reader": "model", "model_url": model.url, "model": "seer", **more}
    return [f"extract.{name}={value}" for name, value in values.items()]


def test_uploads(start, folder, tmp_path):
    with PageModel(lambda n, picture: "# As the model reads it" if n == 1 else (500, "{}")) as model:
        served = start(f"retrieval.collection={folder}", *sets(model))
        said = upload(served, [("file", "two.pdf", two_pages(tmp_path).read_bytes()), ("file", "plain.md", b"Not a page.\n")])
        text = call(served, "GET", "/v1/documents/" + said["data"][0]["id"])["text"]
        assert text.startswith("# As the model reads it\n") and "The second page as it stands in the file." in text
        assert len(model.asked) == 2


def test_upload_whose_time_is_over(start, folder, tmp_path):
    """The model's part of the time ends, and the pages are read without it."""
    with PageModel(lambda n, picture: "hang") as model:
        served = start(f"retrieval.collection={folder}", *sets(model), "retrieval.upload_seconds=12")
        said = upload(served, [("file", "two.pdf", two_pages(tmp_path).read_bytes())])
        text = call(served, "GET", "/v1/documents/" + said["data"][0]["id"])["text"]
        assert "The first page as it stands" in text and "The second page as it stands" in text


@pytest.mark.parametrize("seer", [SEER, QWEN], ids=["llava", "qwen-vl"])
def test_our_own_server_is_such_a_model(seer, tmp_path):
    """A tiny model of random weights: it is asked and answers, and what it says ends at its last token."""
    config = tmp_path / "retro.json"
    config.write_text(json.dumps({"model": {"path": str(seer), "name": "seer", "dtype": "f32"}, "server": {"port": 0}}))
    running = Server(config, tmp_path)
    try:
        options = [f"extract.{name}={value}" for name, value in (
            ("reader", "model"), ("model_url", running.url + "/v1"), ("model", "seer"), ("model_tokens", 4), ("model_prompt", "read"))]
        command = [BUILD / "retro-index", "extract", *(word for option in options for word in ("--set", option)), two_pages(tmp_path)]
        said = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert said.returncode == 0
        assert "its answer ended at 4 tokens" in said.stderr or said.stderr == "", said.stderr
    finally:
        assert running.stop() == 0
