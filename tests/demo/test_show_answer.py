"""tools/show_answer.py against a server made here: what the demo prints of two answers, and that it fails where they fail."""

import http.server
import json
import pathlib
import subprocess
import sys
import threading

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RETRIEVAL = [
    {
        "chunk": 0,
        "position": 12,
        "neighbors": [
            {
                "document": "man2/fork.2.gz",
                "title": "fork(2)",
                "start": 100,
                "end": 420,
                "similarity": 0.75,
                "text": "\n  fork() creates a new\tprocess\x1b[31m\nsecond line",
            }
        ],
    },
    {"chunk": 1, "position": 76, "neighbors": []},
]


def completion(text, reason="stop", retrieval=None):
    return json.dumps({"choices": [{"index": 0, "text": text, "finish_reason": reason}], "retrieval": retrieval})


@pytest.fixture
def serve():
    """Answers every request with what `replies(request)` returns: a status and a body."""
    servers = []

    def start(replies):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                requests.append(request)
                status, body = replies(request)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body.encode())

            def do_GET(self):
                self.send_error(404)

            def log_message(self, *_):
                pass

        requests = []
        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}", requests

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def show(address, text="Why?", *arguments):
    command = [sys.executable, ROOT / "tools/show_answer.py", "--server", address, *arguments, text]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={"COLUMNS": "100"})


def columns(stdout):
    """The texts of the two columns, their lines joined."""
    rows = stdout.split("Without\n")[1].split("\nSources")[0].splitlines()
    pairs = [row.partition("  |") for row in rows]
    return tuple(" ".join(" ".join(pair[side] for pair in pairs).split()) for side in (0, 2))


def both(with_retrieval, without, reason="stop"):
    def replies(request):
        found = request["retrieval"]["enabled"]
        return 200, completion(with_retrieval if found else without, reason, RETRIEVAL if found else [])

    return replies


def test_both_answers_and_the_sources_of_one(serve):
    address, requests = serve(both("Because the child\nis new. " * 5, "Nobody knows."))
    result = show(address)
    assert result.returncode == 0, result.stderr
    one, other = requests
    assert one.pop("retrieval") == {"enabled": True} and other.pop("retrieval") == {"enabled": False}
    assert one == other and one["prompt"] == "Why?" and one["seed"] == 1
    assert result.stdout.startswith("Why? ...\n\nWith retrieval")
    assert columns(result.stdout) == (" ".join(["Because the child is new."] * 5), "Nobody knows.")
    assert all(len(row) <= 100 for row in result.stdout.split("Sources")[0].splitlines())
    sources = result.stdout.split("Sources")[1]
    assert "0.750  man2/fork.2.gz (fork(2)), bytes 100-420" in sources
    assert "fork() creates a new process" in sources and "second line" not in sources and "\x1b" not in result.stdout
    assert "from token 76\n    nothing near enough" in sources


@pytest.mark.parametrize("text, shown", [
    ("The file is closed. It is written at once.\n\nERRORS\n\n   The O", "The file is closed. It is written at once."),
    ("It is in /etc/fstab and in no other file of the sys", "It is in /etc/fstab and in no other file of the ..."),
    ("Yes. It is in /etc/fstab and in no other file", "Yes. It is in /etc/fstab and in no other ..."),
    ("unbroken", "unbroken ..."), ("", "...")])
def test_a_cut_text_ends_cleanly(serve, text, shown):
    address, _ = serve(both(text, text, "length"))
    result = show(address)
    assert result.returncode == 0 and columns(result.stdout) == (shown, shown), result.stderr


def test_a_text_that_ended_by_itself_is_whole(serve):
    address, _ = serve(both("One. And two", "One"))
    assert columns(show(address).stdout) == ("One. And two", "One")


@pytest.mark.parametrize("status, body, message", [
    (400, '{"error": {"message": "max_tokens is 9, allowed is 0 .. 8"}}', "max_tokens is 9, allowed is 0 .. 8"),
    (200, '{"choices": []}', "unexpected reply: "), (200, "<html>not ours</html>", "not ours"), (502, "<html>", "<html>")])
def test_failures(serve, status, body, message):
    address, _ = serve(lambda request: (status, body))
    result = show(address)
    assert result.returncode == 1 and message in result.stderr and "Traceback" not in result.stderr


def test_nobody_there():
    result = show("http://127.0.0.1:1", "Why?", "--wait", "0.5")
    assert result.returncode == 1 and "http://127.0.0.1:1 does not answer" in result.stderr
