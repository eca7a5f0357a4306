"""The end in order, and a successor that takes over: no request fails."""
import concurrent.futures
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time

import pytest

from conftest import BUILD, Server
from test_keys import log_holds


class Activated(Server):
    """A server that is handed a socket as systemd does it."""

    def __init__(self, config, folder, listening, *sets):
        self.log = folder / f"server-{time.monotonic_ns()}.log"
        self.port = listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        command = ["bash", "-c", 'export LISTEN_FDS=1 LISTEN_PID=$$; exec "$@" 3<&%d' % listening.fileno(), "-",
                   BUILD / "retro-server", "--config", config, *(a for s in sets for a in ("--set", s))]
        with self.log.open("w") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, pass_fds=[listening.fileno()])

    def wait(self):
        assert self.wait_for_port() == self.port


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0), backlog=128) as s:
        os.set_inheritable(s.fileno(), True)
        yield s


def test_no_request_fails_across_restarts(config, tmp_path, listening):
    """Four clients, two of which keep their connections, while three servers follow one another."""
    def start_one():
        return Activated(config, tmp_path, listening, "retrieval.collection=", "server.drain_delay=20")

    servers, stop, port = [start_one()], threading.Event(), listening.getsockname()[1]
    body = json.dumps({"prompt": "The", "max_tokens": 8, "temperature": 0})

    def load(keeps):
        connection, answers = None, []
        while not stop.is_set():
            connection = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            connection.request("POST", "/v1/completions", body)
            reply = connection.getresponse()
            assert reply.status == 200, reply.read()
            answers.append(json.loads(reply.read())["choices"][0]["text"])
            if reply.will_close or not keeps:
                connection.close()
                connection = None
        if connection:
            connection.close()
        return answers

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        try:
            loads = [pool.submit(load, keeps=i % 2 == 0) for i in range(4)]
            servers[0].wait()
            for _ in range(2):
                servers.append(start_one())
                servers[-1].wait()
                servers[-2].process.send_signal(signal.SIGTERM)
                assert servers[-2].process.wait(60) == 0, servers[-2].log.read_text()
        finally:
            stop.set()
        answers = [answer for one in loads for answer in one.result(60)]
    assert len(set(answers)) == 1 and len(answers) > 20
    assert servers[-1].stop() == 0
    for server in servers:
        assert " 200 " in server.log.read_text() and not [l for l in server.log.read_text().splitlines() if " 503 " in l]


def test_readiness_goes_first(start):
    server = start("server.drain_delay=60", "retrieval.collection=")
    kept = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    kept.request("GET", "/readyz")
    assert kept.getresponse().read() == b'{"status":"ok"}'
    server.process.send_signal(signal.SIGTERM)
    log_holds(server, "leaving")
    reply = server.request("GET", "/readyz")
    assert reply.status == 503 and reply.json() == {"status": "stopping"}
    assert server.request("GET", "/livez").status == 200
    kept.request("POST", "/v1/completions", json.dumps({"prompt": "The", "max_tokens": 1}))
    answer = kept.getresponse()
    assert answer.status == 200 and answer.headers["Connection"] == "close"
    assert server.complete("The", max_tokens=1), "new connections are answered too"
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(30) == 0


def test_the_service_manager_is_told(config, tmp_path, listening):
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(60)
        os.environ["NOTIFY_SOCKET"] = str(path)
        try:
            server = Activated(config, tmp_path, listening, "retrieval.collection=")
        finally:
            del os.environ["NOTIFY_SOCKET"]
        assert manager.recv(100) == b"READY=1"
        assert server.complete("The", max_tokens=1)
        assert server.stop() == 0
        assert manager.recv(100) == b"STOPPING=1"


def test_sockets_that_do_not_serve(config, tmp_path):
    with socket.socket() as s:
        os.set_inheritable(s.fileno(), True)
        s.bind(("127.0.0.1", 0))
        server = Activated(config, tmp_path, s)
        assert server.process.wait(60) == 1
        assert "does not listen" in server.log.read_text()
