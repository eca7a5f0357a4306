"""The real server on a free port, the model that ships and a small collection made by retro-index.

RETRO_BUILD names the folder of the programs (default build), RETRO_DEPS that of the dependencies,
RETRO_TOOLS that of the retro-index that makes the collection (default RETRO_BUILD): a build with sanitizers is slow."""
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import openai
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
TOOLS = ROOT / os.environ.get("RETRO_TOOLS", BUILD)
DEPS = pathlib.Path(os.environ.get("RETRO_DEPS", pathlib.Path.home() / ".cache/retro-server"))
MODEL = "retro-docs"
END = "<|endoftext|>"  # the token that ends a text, and no part of it
CONFIG = json.loads((ROOT / "models" / MODEL / "config.json").read_text())
CONTEXT, NEIGHBORS = CONFIG["max_position_embeddings"], CONFIG["retro_num_neighbors"]


sys.path.insert(0, str(ROOT / "tools/copyist"))


def no_constants(name):
    raise ValueError(f"{name} is not JSON")


def loads(text):
    """JSON as the standard has it: NaN and Infinity are errors."""
    return json.loads(text, parse_constant=no_constants)


def counted(reply):
    """The tokens that were read and written; how many were kept from before depends on what came before."""
    return {key: n for key, n in reply["usage"].items() if key != "prompt_tokens_details"}


class Reply:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    def json(self):
        assert self.headers["Content-Type"] == "application/json"
        return loads(self.body)

    def error(self):
        error = self.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error


class Stream:
    """A streaming request that is read event by event."""

    def __init__(self, server, body):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self.connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}))
        self.response = self.connection.getresponse()
        self.done = False
        assert self.response.status == 200, self.response.read()
        assert self.response.headers["Content-Type"] == "text/event-stream"
        assert self.response.headers["Cache-Control"] == "no-store"
        assert self.response.headers["X-Accel-Buffering"] == "no"

    def __iter__(self):
        while line := self.response.readline():
            assert line.startswith(b"data: ") and line.endswith(b"\n"), line
            assert self.response.readline() == b"\n"
            if line == b"data: [DONE]\n":
                assert self.response.read() == b""
                self.done = True
                return
            yield loads(line[6:].decode("utf-8"))

    def close(self):
        # http.client keeps the socket open as long as the response lives.
        self.response.close()
        self.connection.close()


class Server:
    def __init__(self, config, folder, *sets):
        self.log = folder / f"server-{time.monotonic_ns()}.log"
        command = [BUILD / "retro-server", "--config", config, *(a for s in sets for a in ("--set", s))]
        with self.log.open("w") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out)
        self.port = self.wait_for_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def wait_for_port(self):
        for _ in range(3000):
            found = re.search(r"listening on https?://127\.0\.0\.1:(\d+)", self.log.read_text())
            if found:
                return int(found[1])
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)
        raise AssertionError(f"the server does not listen:\n{self.log.read_text()}")

    def request(self, method, path, body=None, headers={}):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, body, headers)
            reply = Reply(connection.getresponse())
        finally:
            connection.close()
        assert reply.headers["x-request-id"].startswith("req-")
        return reply

    def post(self, body, path="/v1/completions"):
        return self.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})

    def complete(self, prompt, **fields):
        reply = self.post({"prompt": prompt, **fields})
        assert reply.status == 200, reply.body
        return reply.json()

    def stream(self, prompt, **fields):
        return Stream(self, {"prompt": prompt, **fields})

    def health(self):
        return self.request("GET", "/health").json()

    def socket(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def client(self):
        return openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0, timeout=60)

    def wait_until(self, condition, seconds):
        """Seconds until condition(health) holds; fails after `seconds`."""
        start = time.monotonic()
        while True:
            health = self.health()
            passed = time.monotonic() - start
            if condition(health):
                return passed
            assert passed < seconds, f"after {passed:.3f} s: {health}"
            time.sleep(0.005)

    def stop(self):
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


def pytest_configure(config):
    config.addinivalue_line("markers", "hostile: raw bytes, limits and clients that leave; `make hostile-test` runs these "
                            "against the build with sanitizers")


@pytest.fixture(scope="session")
def config(tmp_path_factory):
    """A configuration with a small collection."""
    folder = tmp_path_factory.mktemp("retro")
    path = folder / "retro.json"
    path.write_text(
        json.dumps(
            {
                "model": {"path": str(ROOT / "models" / MODEL)},
                "retrieval": {"collection": str(folder / "collection"), "embedder": str(DEPS / "minilm"), "max_neighbors": 16},
                "server": {"port": 0},
            }
        )
    )
    documents = sorted(str(p) for p in (ROOT / "tests/texts").glob("*.md"))
    command = [TOOLS / "retro-index", "build", "--out", folder / "collection", "--config", path, *documents]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return path


@pytest.fixture(scope="session")
def copyist_model(tmp_path_factory):
    """The folder of a small model that copies from its prompt (tools/copyist)."""
    from make_copyist import make_copyist

    folder = tmp_path_factory.mktemp("copyist") / "small"
    make_copyist(folder)
    return folder


@pytest.fixture()
def folder(config, tmp_path):
    """A copy of the collection, which the test may change; without the vector stores of tests that share the original."""
    copy = tmp_path / "collection"
    shutil.copytree(json.loads(config.read_text())["retrieval"]["collection"], copy, ignore=shutil.ignore_patterns("vector_stores*"))
    return copy


@pytest.fixture(scope="session")
def server(config, tmp_path_factory):
    running = Server(config, tmp_path_factory.mktemp("server"))
    yield running
    assert running.stop() == 0, running.log.read_text()


@pytest.fixture
def start(config, tmp_path):
    """Starts servers with options of their own; each is stopped, and must not have crashed, when the test ends."""
    servers = []

    def start_one(*sets):
        servers.append(Server(config, tmp_path, *sets))
        return servers[-1]

    yield start_one
    for running in servers:
        if running.process.poll() is None:
            assert running.stop() == 0, running.log.read_text()
        assert running.process.returncode == 0, running.log.read_text()
