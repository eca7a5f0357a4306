"""TLS: with curl, with OpenAI's client and with a CA of our own; renewed while connections are open."""
import concurrent.futures
import http.client
import json
import re
import signal
import socket
import ssl
import subprocess

import httpx
import openai
import pytest

from conftest import BUILD, MODEL
from test_keys import log_holds


def openssl(*arguments, **options):
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr


class Authority:
    """A CA that signs certificates of 127.0.0.1."""

    def __init__(self, folder):
        self.folder = folder
        self.certificate, self.key = folder / "ca.pem", folder / "ca.key"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", 2, "-subj",
                "/CN=CA of a test", "-keyout", self.key, "-out", self.certificate)

    def sign(self, name, kind="ec"):
        """Writes server.pem and server.key."""
        options = ["-pkeyopt", "ec_paramgen_curve:prime256v1"] if kind == "ec" else ["-pkeyopt", "rsa_keygen_bits:2048"]
        request, extensions = self.folder / "request.pem", self.folder / "extensions"
        extensions.write_text("subjectAltName=IP:127.0.0.1\n")
        key, certificate = self.folder / f"{name}.key", self.folder / f"{name}.pem"
        openssl("req", "-newkey", kind, *options, "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial", "-days",
                2, "-extfile", extensions, "-out", certificate)
        key.replace(self.folder / "server.key")
        certificate.replace(self.folder / "server.pem")

    def context(self):
        return ssl.create_default_context(cafile=self.certificate)


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def start_tls(start, authority):
    def start_one(*sets):
        server = start("retrieval.collection=", f"server.tls_certificate={authority.folder}/server.pem",
                       f"server.tls_key={authority.folder}/server.key", *sets)
        server.url = f"https://127.0.0.1:{server.port}"
        return server

    return start_one


def connect(server, authority):
    return http.client.HTTPSConnection("127.0.0.1", server.port, timeout=60, context=authority.context())


def subject(connection):
    """The name in the certificate that the connection was opened with."""
    connection.connect()
    return dict(pair for part in connection.sock.getpeercert()["subject"] for pair in part)["commonName"]


def get(connection, path="/livez"):
    connection.request("GET", path)
    reply = connection.getresponse()
    return reply.status, reply.read()


@pytest.mark.parametrize("kind", ["ec", "rsa"])
def test_clients(start_tls, authority, kind):
    authority.sign("first", kind)
    server = start_tls()
    curl = ["curl", "-sS", "--cacert", authority.certificate, server.url + "/v1/completions", "-d",
            '{"prompt": "The", "max_tokens": 4, "ignore_eos": true}']
    done = subprocess.run(curl, capture_output=True, text=True)
    assert json.loads(done.stdout)["usage"]["completion_tokens"] == 4, done.stderr
    assert subprocess.run(["curl", "-sS", server.url + "/livez"], capture_output=True).returncode == 60, "no known CA"
    plain = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    plain.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert not plain.recv(100).startswith(b"HTTP")
    plain.close()

    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0,
                       http_client=httpx.Client(verify=authority.context())) as client:
        alone = client.completions.create(model=MODEL, prompt="The", max_tokens=24, temperature=0).choices[0].text
        events = list(client.completions.create(model=MODEL, prompt="The", max_tokens=24, temperature=0, stream=True))
        assert "".join(event.choices[0].text for event in events) == alone
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            texts = pool.map(lambda _: client.completions.create(model=MODEL, prompt="The", max_tokens=24, temperature=0), range(24))
            assert {reply.choices[0].text for reply in texts} == {alone}


@pytest.mark.parametrize("version, works", [(ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, True)])
def test_versions(start_tls, authority, version, works):
    authority.sign("first")
    server = start_tls()
    context = authority.context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as s:
        try:
            with context.wrap_socket(s, server_hostname="127.0.0.1") as wrapped:
                assert works and wrapped.version()
        except (ssl.SSLError, ConnectionResetError):
            assert not works


def test_a_large_body_is_told(start_tls, authority):
    """The refusal in the midst of a body goes through the session."""
    authority.sign("first")
    server = start_tls("server.max_body_bytes=2000")
    for headers, size in (({"Transfer-Encoding": "chunked"}, 100000), ({"Content-Length": "100000"}, 10)):
        connection = connect(server, authority)
        connection.putrequest("POST", "/v1/completions")
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        connection.send(b"%x\r\n" % size + size * b" ")
        reply = connection.getresponse()
        assert reply.status == 413 and json.loads(reply.read())["error"]["code"] == "body_too_large"
        connection.close()


def test_a_client_that_leaves(start_tls, authority):
    authority.sign("first")
    server = start_tls()
    connection = connect(server, authority)
    connection.request("POST", "/v1/completions", json.dumps({"prompt": "The", "max_tokens": 480, "ignore_eos": True, "stream": True}))
    reply = connection.getresponse()
    assert reply.readline().startswith(b"data: ")
    reply.close()
    connection.close()
    log_holds(server, "499")


def test_silent_clients_go(start_tls, authority):
    """Neither half a handshake nor half a head keeps a connection."""
    authority.sign("first")
    server = start_tls("server.head_timeout=1")
    with server.socket() as s:
        s.sendall(b"\x16\x03\x01\x02")
        assert s.recv(1) == b""
    connection = connect(server, authority)
    connection.connect()
    connection.sock.sendall(b"GET /livez HT")
    try:
        assert connection.sock.recv(1) == b""
    except (ssl.SSLError, ConnectionResetError):
        pass
    connection.close()


def test_renewal(start_tls, authority):
    """SIGHUP: new connections get the new certificate, open ones go on, and a wrong file changes nothing."""
    authority.sign("first")
    server = start_tls()
    old = connect(server, authority)
    assert subject(old) == "first"
    stream = connect(server, authority)
    stream.request("POST", "/v1/completions", json.dumps({"prompt": "The", "max_tokens": 200, "ignore_eos": True, "stream": True}))
    events = stream.getresponse()

    authority.sign("second", "rsa")
    server.process.send_signal(signal.SIGHUP)
    log_holds(server, "certificate of CN=second")
    new = connect(server, authority)
    assert subject(new) == "second"
    assert get(old)[0] == get(new)[0] == 200
    assert events.read().endswith(b"data: [DONE]\n\n")

    authority.sign("third")
    (authority.folder / "server.key").write_text("no key")
    server.process.send_signal(signal.SIGHUP)
    log_holds(server, "the certificate is as before")
    assert subject(connect(server, authority)) == "second" and get(old)[0] == 200
    assert "BEGIN" not in server.log.read_text()


def test_renewal_under_load(start_tls, authority):
    """Certificates change while clients connect as fast as they can: no connection fails, no descriptor is lost."""
    authority.sign("first")
    server = start_tls()
    pairs = []
    for name in ("first", "second"):
        authority.sign(name)
        pairs.append([(authority.folder / f"server.{end}").read_text() for end in ("pem", "key")])

    def ask(_):
        connection = connect(server, authority)
        name = subject(connection)
        status, body = get(connection, "/version")
        connection.close()
        return name, status

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(ask, i) for i in range(120)]
        for i in range(20):
            for end, text in zip(("pem", "key"), pairs[i % 2]):
                (authority.folder / f"server.{end}").write_text(text)
            server.process.send_signal(signal.SIGHUP)
            log_holds(server, "certificate of CN=", times=i + 2)
        answers = [future.result() for future in asked]
    assert {status for _, status in answers} == {200}
    assert {name for name, _ in answers} <= {"first", "second"}


def test_wrong_files(config, authority, tmp_path):
    authority.sign("first")
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"

    def run(*sets):
        command = [BUILD / "retro-server", "--config", config, "--check-config", *(a for s in sets for a in ("--set", s))]
        return subprocess.run(command, capture_output=True, text=True)

    assert run(f"server.tls_certificate={certificate}", f"server.tls_key={key}").returncode == 0
    alone = run(f"server.tls_certificate={certificate}")
    assert alone.returncode == 1 and "need each other" in alone.stderr
    assert run(f"server.tls_certificate={certificate}", "server.tls_key=/nowhere").returncode == 1
    mixed = run(f"server.tls_certificate={authority.certificate}", f"server.tls_key={key}")
    assert mixed.returncode == 1 and re.search("server.tls_certificate, server.tls_key: .*key", mixed.stderr)
    assert run(f"server.keys_file={key}").returncode == 1


@pytest.mark.parametrize("kind", ["ec", "rsa"])
def test_ciphers(authority, start_tls, kind):
    """TLS 1.2 with ephemeral keys and sealing ciphers alone; 1.3 has no others."""
    authority.sign("first", kind)
    server = start_tls()

    def agree(ciphers, version=ssl.TLSVersion.TLSv1_2):
        context = authority.context()
        context.minimum_version = context.maximum_version = version
        context.set_ciphers(f"{ciphers}:@SECLEVEL=0")
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
            with context.wrap_socket(s, server_hostname="127.0.0.1") as wrapped:
                return wrapped.cipher()[0]

    signed = "ECDSA" if kind == "ec" else "RSA"
    for cipher in ("AES256-GCM-SHA384", "CHACHA20-POLY1305", "AES128-GCM-SHA256"):
        assert agree(f"ECDHE-{signed}-{cipher}") == f"ECDHE-{signed}-{cipher}"
    refused = ["kRSA", f"ECDHE-{signed}-AES128-SHA", f"ECDHE-{signed}-AES256-SHA", f"ECDHE-{signed}-AES128-SHA256", "3DES"]
    for cipher in [*refused, "DHE-RSA-AES128-SHA"]:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            agree(cipher)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        agree("ALL", ssl.TLSVersion.TLSv1_1)
    assert agree("ALL", ssl.TLSVersion.TLSv1_3).startswith("TLS_")
