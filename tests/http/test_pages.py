"""Web pages of others, and names of others, before a server without keys: a browser on the same machine would carry
their requests to it."""
import json
import os
import socket
import subprocess
import time

import pytest

from conftest import BUILD
from test_keys import bearer, keys  # noqa: F401 (a fixture)
from test_restart import Activated

pytestmark = pytest.mark.hostile

OWN = "http://127.0.0.1:{port}"
DOCUMENT = json.dumps({"id": "planted", "text": "A text that a page planted."})


def ask(server, method, path, body=None, **headers):
    headers = {name.replace("_", "-"): value.format(port=server.port) for name, value in headers.items()}
    return server.request(method, path, body, headers)


@pytest.fixture
def writable(start, folder):
    return start(f"retrieval.collection={folder}", "retrieval.documents=write")


FOREIGN = [
    dict(Origin="https://evil.example"),
    dict(Origin="null"),
    dict(Origin="http://127.0.0.1:1"),
    dict(Origin="http://localhost:{port}"),  # the server was called by its address
    dict(Origin="http://127.0.0.1.evil.example:{port}"),
    dict(Sec_Fetch_Site="cross-site"),
    dict(Sec_Fetch_Site="same-site"),
    dict(Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors", Sec_Fetch_Dest="image"),
    dict(Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="iframe"),
]
OWNED = [
    dict(),
    dict(Origin=OWN, Sec_Fetch_Site="same-origin"),
    dict(Origin="https://127.0.0.1:{port}"),  # behind a proxy that speaks TLS
    dict(Host="localhost:{port}", Origin="http://localhost:{port}"),
    dict(Sec_Fetch_Site="none"),
    dict(Sec_Fetch_Site="same-origin"),
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_foreign_pages_neither_read_nor_write(writable, headers):
    for method, path, body in (("POST", "/v1/documents", DOCUMENT), ("PUT", "/v1/documents/planted", DOCUMENT),
                               ("DELETE", "/v1/documents/planted", None), ("GET", "/v1/documents", None),
                               ("GET", "/v1/retrieval/search?q=a", None), ("POST", "/v1/completions", '{"prompt": "a"}')):
        reply = ask(writable, method, path, body, **headers, Content_Type="text/plain")
        assert reply.status == 403, (method, path)
        assert reply.error()["code"] == "origin_not_allowed" and "server.cors_origins" in reply.error()["message"]
    assert "planted" not in writable.request("GET", "/v1/documents").body.decode()


@pytest.mark.parametrize("headers", OWNED, ids=str)
def test_own_pages_and_programs_go_on(writable, headers):
    assert ask(writable, "POST", "/v1/documents", DOCUMENT, **headers, Content_Type="application/json").status in (200, 201)
    assert ask(writable, "GET", "/v1/documents/planted", **headers).status == 200
    assert ask(writable, "DELETE", "/v1/documents/planted", **headers).status == 200


def test_a_link_is_followed_and_changes_nothing(writable):
    link = dict(Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="document")
    assert ask(writable, "GET", "/v1/models", **link).status == 200
    assert ask(writable, "POST", "/v1/documents", DOCUMENT, **link).status == 403


def test_pages_that_are_listed(start):
    server = start('server.cors_origins=["https://page.example"]', "retrieval.collection=")
    for headers, status in ((dict(Origin="https://page.example", Sec_Fetch_Site="cross-site"), 200),
                            (dict(Origin="https://other.example", Sec_Fetch_Site="cross-site"), 403)):
        assert ask(server, "GET", "/v1/models", **headers).status == status
    every = start('server.cors_origins=["*"]', "retrieval.collection=")
    assert ask(every, "GET", "/v1/models", Origin="https://other.example", Sec_Fetch_Site="cross-site").status == 200


@pytest.mark.parametrize("host, status", [
    ("localhost", 200), ("LOCALHOST:{port}", 200), ("a.localhost:1", 200), ("localhost.", 200), ("127.0.0.1", 200),
    ("192.168.1.7:8080", 200), ("[::1]:{port}", 200), ("[2001:db8::7]", 200), ("evil.example", 403),
    ("evil.example:{port}", 403), ("notlocalhost", 403), ("localhost.evil.example", 403), ("127.0.0.1.evil.example", 403),
    ("", 403), ("[::1", 403), ("localhost:a", 403), ("a" * 300, 403), (".", 403)])
def test_names_that_the_server_goes_by(server, host, status):
    """A name that a page pointed at this machine is the page's, not the server's."""
    reply = ask(server, "GET", "/v1/models", Host=host)
    assert reply.status == status
    if status == 403:
        assert reply.error()["code"] == "host_not_allowed" and "server.hosts" in reply.error()["message"]
    assert ask(server, "GET", "/livez", Host=host).status == 200


def test_names_that_are_listed(start):
    server = start('server.hosts=["rag.example", "*.lan.example", "nas", "one.example:81"]', "retrieval.collection=")
    for host, status in (("rag.example", 200), ("RAG.example:8080", 200), ("a.lan.example", 200), ("lan.example", 403), ("nas:8080", 200), ("one.example:81", 200),
                         ("one.example", 403), ("x.rag.example", 403)):
        assert ask(server, "GET", "/v1/models", Host=host).status == status, host
    assert ask(server, "GET", "/v1/models", Host="rag.example", Origin="https://rag.example").status == 200


def test_with_keys_the_key_says_who_asks(start, keys):  # noqa: F811
    secret = keys.add("alice")
    server = start(f"server.keys_file={keys.path}", "retrieval.collection=")
    for headers in (dict(Origin="https://evil.example", Sec_Fetch_Site="cross-site"), dict(Host="any.example")):
        assert ask(server, "GET", "/v1/models", **headers, **bearer(secret)).status == 200
        assert ask(server, "GET", "/v1/models", **headers).status == 401


def listen(family, address):
    s = socket.socket(family, socket.SOCK_STREAM)
    if family == socket.AF_INET6:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    s.bind(address)
    s.listen(16)
    os.set_inheritable(s.fileno(), True)
    return s


@pytest.mark.parametrize("family, address, client, local, shown", [
    (socket.AF_INET, ("127.0.0.1", 0), "127.0.0.1", True, "http://127.0.0.1:{port}"),
    (socket.AF_INET, ("127.1.2.3", 0), "127.1.2.3", True, "http://127.1.2.3:{port}"),
    (socket.AF_INET, ("0.0.0.0", 0), "127.0.0.1", False, "http://0.0.0.0:{port}"),
    (socket.AF_INET6, ("::", 0), "::1", False, "http://[::]:{port}"),
    (socket.AF_INET6, ("::1", 0), "::1", True, "http://[::1]:{port}"),
    (socket.AF_INET6, ("::ffff:127.0.0.1", 0), "127.0.0.1", True, "http://127.0.0.1:{port}"),
    (socket.AF_UNIX, "retro.sock", None, True, "http://unix:{path}"),
], ids=lambda value: str(value) if isinstance(value, tuple) else None)
def test_documents_follow_the_socket(config, tmp_path, folder, family, address, client, local, shown):
    """The socket is the service manager's, and server.host means nothing."""
    if family == socket.AF_UNIX:
        address = str(tmp_path / address)
    with listen(family, address) as listening:
        port = 0 if family == socket.AF_UNIX else listening.getsockname()[1]
        server = Activated.__new__(Activated)
        start_on(server, config, tmp_path, listening, port, f"retrieval.collection={folder}")
        try:
            words = "listening on " + shown.format(port=port, path=address)
            server_says(server, words)
            status = put(address if family == socket.AF_UNIX else (client, port), DOCUMENT)
        finally:
            assert server.stop() == 0
    assert status in ((200, 201) if local else (403,))


def start_on(server, config, folder, listening, port, *sets):
    """Activated takes the port of the socket, which one of the file system has not."""
    class Socket:
        fileno = listening.fileno

        @staticmethod
        def getsockname():
            return (None, port)

    Activated.__init__(server, config, folder, Socket, *sets)


def server_says(server, words):
    deadline = time.monotonic() + 60
    while words + "\n" not in server.log.read_text():
        assert server.process.poll() is None and time.monotonic() < deadline, server.log.read_text()
        time.sleep(0.02)


def put(at, body):
    family = socket.AF_UNIX if isinstance(at, str) else socket.AF_INET6 if ":" in at[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(60)
        s.connect(at)
        s.sendall(b"PUT /v1/documents/planted HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                  % (len(body), body.encode()))
        return int(s.makefile("rb").readline().split()[1])


def test_a_start_without_keys_where_all_reach_it(config, tmp_path, keys):  # noqa: F811
    """What the container's image asks for: keys, or the word that none are meant."""
    def start_at(host, *sets):
        words = [a for s in ("server.require_keys=true", f"server.host={host}", "retrieval.collection=", *sets) for a in ("--set", s)]
        return [BUILD / "retro-server", "--config", config, *words]

    for check in ([], ["--check-config"]):
        refused = subprocess.run(start_at("0.0.0.0") + check, capture_output=True, text=True, timeout=60)
        assert refused.returncode == 1 and "server.keys_file" in refused.stderr and "server.require_keys" in refused.stderr
    keys.add("alice")
    for host, sets in (("127.0.0.1", []), ("0.0.0.0", [f"server.keys_file={keys.path}"])):
        subprocess.run(start_at(host, *sets) + ["--check-config"], check=True, capture_output=True, timeout=60)
    for host, sets in (("127.0.0.1", []), ("0.0.0.0", [f"server.keys_file={keys.path}"])):
        log = tmp_path / "log"
        with log.open("w") as out:
            process = subprocess.Popen(start_at(host, *sets), stdout=out, stderr=out)
        deadline = time.monotonic() + 60
        while "listening on" not in log.read_text():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        process.terminate()
        assert process.wait(30) == 0
