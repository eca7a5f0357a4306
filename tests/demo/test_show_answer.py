"""tools/show_answer.py: what the demo prints of a stream, and that it fails where the stream failed."""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RETRIEVAL = {
    "choices": [],
    "retrieval": [
        {
            "chunk": 0,
            "position": 12,
            "neighbors": [
                {
                    "document": "man2/fork.2.gz",
                    "title": "fork(2)",
                    "start": 100,
                    "end": 420,
                    "distance": 0.25,
                    "text": "\n  fork() creates a new\tprocess\nsecond line",
                }
            ],
        },
        {"chunk": 1, "position": 76, "neighbors": []},
    ],
}
TEXT = {"choices": [{"index": 0, "text": " über"}]}


def show(stream, *arguments):
    return subprocess.run(
        [sys.executable, ROOT / "tools/show_answer.py", *arguments], input=stream, capture_output=True, text=True, timeout=20
    )


def stream(*events, done=True):
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return ": a comment\n\n" + "".join(lines) + ("data: [DONE]\n\n" if done else "")


def test_text_then_sources():
    result = show(stream(RETRIEVAL, TEXT, TEXT), "Why?")
    assert result.returncode == 0, result.stderr
    text, sources = result.stdout.split("Sources")
    assert text.strip() == "Why? über über"
    assert "0.250  man2/fork.2.gz (fork(2)), bytes 100-420" in sources
    assert "fork() creates a new process" in sources and "second line" not in sources
    assert "nothing near enough" in sources


def test_plain_error_body():
    result = show('{"error": {"message": "max_tokens is 9, allowed is 0 .. 8", "type": "invalid_request_error"}}\n')
    assert result.returncode == 1 and result.stderr.strip() == "max_tokens is 9, allowed is 0 .. 8"


def test_error_within_the_stream():
    result = show(stream(TEXT, {"error": {"message": "the engine stopped"}}, done=False))
    assert result.returncode == 1 and "the engine stopped" in result.stderr


def test_stream_cut_short():
    result = show(stream(TEXT, done=False))
    assert result.returncode == 1 and "ended early" in result.stderr
    assert show("").returncode == 1


def test_reply_of_something_else():
    result = show("<html>not ours</html>\n")
    assert result.returncode == 1 and "not ours" in result.stderr
