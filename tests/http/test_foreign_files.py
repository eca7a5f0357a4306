"""Uploads that attack: what they ask of the server's files, time and memory, and what other clients notice of it."""
import os
import pathlib
import sys

import pytest

from test_documents import call, upload

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "index"))
import make_files  # noqa: E402

# This file is what a hostile page asks for, by its name in the server's directory; no string here has the mark whole:
# MARK-OF-THE-FILE
MARK = "-".join(("MARK", "OF", "THE", "FILE"))
HERE = os.path.relpath(__file__)


@pytest.fixture()
def served(start, folder):
    return start(f"retrieval.collection={folder}")


REQUESTS = [".so {}", "'so {}", ".cc !\n!so {}", ".if 1 .so {}", ".de XX\n.so {}\n..\n.XX", ".ds a s\n.\\*ao {}",
            ".so\\\n {}", ".mso {}", ".pso cat {}"]


def page(request):
    return (".TH CAT 1\n.SH NAME\ncat \\- join\n.SH FILES\n" + request.format(HERE) + "\nThe end.\n").encode()


def test_man_pages_read_no_files(served):
    """Alone, in an archive and in a message."""
    for i, request in enumerate(REQUESTS):
        man, name = page(request), f"cat{i}.1"
        mail = (b"From: a@example.org\nSubject: x\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\n"
                b"Content-Type: text/plain\n\nHello.\n--b\nContent-Disposition: attachment; filename=cat.1\n\n" + man + b"\n--b--\n")
        said = upload(served, [("file", name, man), ("file", f"{i}.zip", make_files.zipped([("cat.1", man)])), ("file", f"{i}.eml", mail)])
        shown = [call(served, "GET", "/v1/documents/" + document["id"])["text"] for document in said["data"]]
        assert len(shown) == 4 and sum("cat - join" in text for text in shown) == 3, shown
        assert not any(MARK in text for text in shown), request
