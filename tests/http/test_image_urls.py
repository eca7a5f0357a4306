"""Pictures that the server fetches: only from listed hosts and public or listed addresses, within bytes and seconds, and
while a host is slow nobody waits but those who asked for its picture."""
import base64
import gzip
import http.client
import http.server
import json
import subprocess
import threading
import time

import pytest
from conftest import BUILD, ROOT, Server

CLIP = ROOT / "tests/golden/clip_served"
SEER = ROOT / "tests/golden/llava_served"
LIMIT = 40000  # bytes of a request's pictures


class Host(http.server.ThreadingHTTPServer):
    """A host of pictures; `slow` waits until `release` is set or the client has gone."""
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked, self.left, self.release = [], threading.Event(), threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, path, name="127.0.0.1"):
        return f"http://{name}:{self.server_port}/{path}"


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        host, path = self.server, self.path[1:]
        host.asked.append((path, dict(self.headers)))
        if path.startswith("to/"):
            self.reply(302, b"elsewhere", Location=path[3:].replace("PORT", str(host.server_port)))
        elif path == "slow":
            self.wait()
        elif path == "large":
            self.reply(200, bytes(2 * LIMIT))
        elif path == "endless":
            self.pour()
        elif path == "heads":
            self.pour(b"X-More: " + b"a" * 900 + b"\r\n")
        elif path == "bomb":
            self.reply(200, gzip.compress(bytes(20 << 20)), **{"Content-Encoding": "gzip", "Content-Type": "image/png"})
        elif path == "words":
            self.reply(200, b"no picture")
        elif (SEER / path).is_file():
            self.reply(200, (SEER / path).read_bytes())
        else:
            self.reply(404, b"nothing here")

    def wait(self):
        self.connection.settimeout(0.05)
        while not self.server.release.is_set():
            try:
                if self.connection.recv(1) == b"":
                    self.server.left.set()
                    return
            except TimeoutError:
                pass
        self.reply(200, (SEER / "wide.png").read_bytes())

    def pour(self, head=b""):
        """A body without a length that does not end, or with `head` a head that does not."""
        self.send_response(200)
        if head:
            self.flush_headers()
        else:
            self.end_headers()
        try:
            while True:
                self.wfile.write(head or bytes(1000))
        except OSError:
            self.server.left.set()


@pytest.fixture(scope="module")
def host():
    running = Host()
    yield running
    running.release.set()
    running.shutdown()
    running.server_close()


def settings(host, **options):
    return {"model": {"path": str(SEER), "name": "seer", "dtype": "f32",
                      "others": [{"path": str(CLIP), "role": "embedder", "name": "clip"}]},
            "server": {"port": 0, "max_context": 400, "image_bytes": LIMIT, "image_timeout": 600,
                       "image_urls": [f"127.0.0.1:{host.server_port}", f"localhost:{host.server_port}", "*.example.org"],
                       **options}}


def start(folder, config):
    (folder / "retro.json").write_text(json.dumps(config))
    return Server(folder / "retro.json", folder)


@pytest.fixture(scope="module")
def server(tmp_path_factory, host):
    running = start(tmp_path_factory.mktemp("fetched"), settings(host))
    yield running
    assert running.stop() == 0, running.log.read_text()


def part(url):
    return {"type": "image_url", "image_url": {"url": url}}


def data_url(name):
    return "data:image/png;base64," + base64.b64encode((SEER / name).read_bytes()).decode()


def ask(server, *urls, **fields):
    content = [part(url) for url in urls] + [{"type": "text", "text": "Which one?"}]
    return server.post({"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 6, **fields},
                       "/v1/chat/completions")


def said(server, *urls):
    reply = ask(server, *urls)
    assert reply.status == 200, reply.body
    return reply.json()["choices"][0]["message"]["content"], reply.json()["usage"]["prompt_tokens"]


def refuse(server, url, code, *words):
    reply = ask(server, url)
    error = reply.error()
    assert reply.status == 400 and error["code"] == code and all(word in error["message"] for word in words), error


def test_as_if_they_were_sent(server, host):
    assert said(server, host.url("wide.png")) == said(server, data_url("wide.png"))
    mixed = said(server, host.url("tall.png"), data_url("plain.png"), host.url("wide.png"))
    assert mixed == said(server, data_url("tall.png"), data_url("plain.png"), data_url("wide.png"))
    headers = host.asked[-1][1]
    assert headers["User-Agent"].startswith("retro-server/") and "Cookie" not in headers and "Accept-Encoding" not in headers
    reply = ask(server, host.url("wide.png"), stream=True)
    assert reply.status == 200 and reply.headers["Content-Type"].startswith("text/event-stream")


def test_embeddings(server, host):
    def embed(url):
        reply = server.post({"model": "clip", "input": [part(url), {"type": "text", "text": "a"}]}, "/v1/embeddings")
        assert reply.status == 200, reply.body
        return [item["embedding"] for item in reply.json()["data"]]

    assert embed(host.url("wide.png")) == embed(data_url("wide.png"))
    many = [part(host.url("wide.png"))] * (LIMIT // (SEER / "wide.png").stat().st_size + 1)
    reply = server.post({"model": "clip", "input": many}, "/v1/embeddings")
    assert len(many) > 16 and reply.status == 413 and "server.image_bytes" in reply.error()["message"], reply.body
    reply = server.post({"model": "clip", "input": [part(host.url("nothing"))]}, "/v1/embeddings")
    assert reply.status == 400 and "input 0" in reply.error()["message"] and "404" in reply.error()["message"]


@pytest.mark.parametrize("url, words", [
    ("http://example.net/a.png", ["message 0", "example.net, port 80, is not in server.image_urls"]),
    ("http://example.org/a.png", ["example.org, port 80"]),
    ("http://www.example.org:8080/a.png", ["www.example.org, port 8080"]),
    ("http://127.0.0.1/a.png", ["127.0.0.1, port 80"]),
    ("http://0x7f.1:1/a.png", ["127.0.0.1, port 1,"]),
    ("http://someone:secret@127.0.0.1:PORT/wide.png", ["user's name"]),
    ("http://127.0.0.1:PORT@example.net/wide.png", ["message 0"]),
    ("http://[::ffff:10.0.0.1]/a.png", ["port 80, is not in"]),
    ("http:///a.png", ["message 0"]),
    ("http://", ["message 0"]),
    ("file:///etc/passwd", ["http: and https: alone"]),
    ("ftp://127.0.0.1:PORT/wide.png", ["http: and https: alone"]),
    ("HTTPX://127.0.0.1:PORT/wide.png", ["http: and https: alone"]),
    ("http://127.0.0.1:PORT/wide.png\u0000", ["NUL"]),
])
def test_other_urls_are_refused(server, host, url, words):
    before = len(host.asked)
    refuse(server, url.replace("PORT", str(host.server_port)), "unsupported_content", *words)
    assert len(host.asked) == before


def test_no_name_leads_to_a_private_address(server, host):
    """The listed name is looked up, and its address is refused when the connection is made."""
    before = len(host.asked)
    refuse(server, host.url("wide.png", "localhost"), "invalid_image", "no public address")
    assert len(host.asked) == before


def test_redirections(server, host):
    assert said(server, host.url("to//wide.png")) == said(server, data_url("wide.png"))
    assert said(server, host.url("to//to//to//wide.png")) == said(server, data_url("wide.png"))
    refuse(server, host.url("to//to//to//to//wide.png"), "invalid_image", "more than 3 times")
    refuse(server, host.url("to/http://localhost:PORT/wide.png"), "invalid_image", "no public address")
    for target in ("http://example.net/a.png", "http://127.0.0.1:1/a.png", "http://me@127.0.0.1:PORT/wide.png",
                   "file:///etc/passwd", "gopher://127.0.0.1:PORT/"):
        refuse(server, host.url("to/" + target), "invalid_image", "redirected to", "it is not fetched")
    assert not any(path == "wide.png" and headers["Host"].startswith("localhost") for path, headers in host.asked)


def test_answers_that_are_no_pictures(server, host):
    refuse(server, host.url("nothing"), "invalid_image", "message 0", "HTTP status 404")
    refuse(server, host.url("words"), "invalid_image", "message 0")
    refuse(server, host.url("large"), "invalid_image", "server.image_bytes")
    host.left.clear()
    refuse(server, host.url("endless"), "invalid_image", "server.image_bytes")
    assert host.left.wait(300)
    host.left.clear()
    refuse(server, host.url("heads"), "invalid_image", "message 0")
    assert host.left.wait(300)
    assert len(gzip.compress(bytes(20 << 20))) < LIMIT  # nothing is unpacked: the bytes are no picture
    refuse(server, host.url("bomb"), "invalid_image", "message 0")
    refuse(server, host.url("to/http://[::ffff:10.0.0.1]:PORT/wide.png"), "invalid_image", "it is not fetched")
    many = [host.url("wide.png")] * (LIMIT // (SEER / "wide.png").stat().st_size + 1)
    reply = ask(server, *many)
    assert reply.status == 400 and "server.image_bytes" in reply.error()["message"]


def test_a_slow_host_keeps_nobody_waiting(server, host):
    """Others have their pictures meanwhile, sent ones and fetched ones, and the page's questions answers."""
    host.release.clear()
    replies = []
    askers = [threading.Thread(target=lambda: replies.append(ask(server, host.url("slow")))) for _ in range(4)]
    for asker in askers:
        asker.start()
    while sum(path == "slow" for path, _ in host.asked) < 4:
        time.sleep(0.01)
    said(server, host.url("tall.png"))
    said(server, data_url("wide.png"))
    assert server.health()["status"] == "ok" and replies == []
    host.release.set()
    for asker in askers:
        asker.join()
    assert [reply.status for reply in replies] == [200] * 4


def test_a_client_that_leaves_ends_it(server, host):
    host.release.clear()
    host.left.clear()
    asked = len(host.asked)
    body = json.dumps({"messages": [{"role": "user", "content": [part(host.url("slow"))]}]})
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    while len(host.asked) == asked:
        time.sleep(0.01)
    connection.close()
    assert host.left.wait(300)
    host.release.set()


def test_the_time_limit_and_a_stop(tmp_path, host):
    running = start(tmp_path, settings(host, image_timeout=1, drain_timeout=0))
    host.release.clear()
    refuse(running, host.url("slow"), "invalid_image", "1 seconds", "server.image_timeout")
    asked = len(host.asked)
    asker = threading.Thread(target=lambda: ask(running, host.url("slow")))
    asker.start()
    while len(host.asked) == asked:
        time.sleep(0.01)
    assert running.stop() == 0
    asker.join()
    host.release.set()


@pytest.mark.parametrize("entry", ["", "http://example.org", "example.org:0", "example.org:99999", "*.org", "*", "a..b", "[::1",
                                   "127.0.0.1:x"])
def test_wrong_entries(tmp_path, entry):
    command = [BUILD / "retro-server", "--set", f"model.path={SEER}", "--set", f"server.image_urls={json.dumps([entry])}",
               "--check-config"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "server.image_urls" in done.stdout + done.stderr, done.stdout + done.stderr
