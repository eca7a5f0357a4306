"""Three servers behind nginx and behind HAProxy, configured by the files of docs/replicas.md."""
import concurrent.futures
import http.client
import json
import pathlib
import re
import socket
import subprocess
import threading
import time

import pytest

from http_fixtures import BUILD, Server

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/replicas.md").read_text()
PROXIES = ("haproxy", "nginx")
NGINX = """
daemon off; pid %(folder)s/nginx.pid; error_log %(folder)s/nginx.log warn; worker_processes 1;
events {}
http {
    access_log %(folder)s/access.log;
    client_body_temp_path %(folder)s/body; proxy_temp_path %(folder)s/proxy; fastcgi_temp_path %(folder)s/fastcgi;
    uwsgi_temp_path %(folder)s/uwsgi; scgi_temp_path %(folder)s/scgi;
    %(site)s
}
"""


def free_ports(n):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Replica(Server):
    """A server on a port that it keeps from one start to the next."""

    def __init__(self, config, folder, port):
        self.arguments, self.port = (config, folder), port
        self.start()

    def start(self):
        config, folder = self.arguments
        super().__init__(config, folder, f"server.port={self.port}", "server.drain_delay=3", "model.threads=1",
                         "retrieval.collection=")


class Site:
    """The replicas and the proxy before them."""

    def __init__(self, proxy, config, folder):
        self.port, *ports = free_ports(4)
        self.replicas = [Replica(config, folder, port) for port in ports]
        text = re.search(rf"^```{proxy}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1]
        for written, used in zip((8080, 8081, 8082, 8083), (self.port, *ports)):
            assert f":{written}" in text
            text = text.replace(f":{written}", f":{used}")
        file = folder / f"{proxy}.conf"
        if proxy == "nginx":
            file.write_text(NGINX % {"folder": folder, "site": text})
            command = ["/usr/sbin/nginx", "-p", folder, "-c", file]
        else:
            file.write_text(text)
            command = ["/usr/sbin/haproxy", "-db", "-f", file]
        self.log = folder / "proxy.log"
        with self.log.open("w") as out:
            self.proxy = subprocess.Popen(command, stdout=out, stderr=out)
        self.wait()

    def wait(self):
        deadline = time.monotonic() + 60
        while self.ask("/readyz") != 200:
            assert self.proxy.poll() is None and time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def ask(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    def complete(self, connection, prompt, prefix=None, **fields):
        headers = {"Content-Type": "application/json"} | ({"X-Prefix": prefix} if prefix else {})
        body = {"prompt": prompt, "max_tokens": 4, "temperature": 0, **fields}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        reply = connection.getresponse()
        text = reply.read()
        assert reply.status == 200, text
        return text, reply.will_close

    def taken(self):
        """How many prompts each replica has answered since it was started."""
        counts = []
        for replica in self.replicas:
            text = replica.request("GET", "/metrics").body.decode()
            counts.append(sum(int(n) for n in re.findall(r"^retro_request_success_total.* (\d+)$", text, re.MULTILINE)))
        return counts

    def wait_for(self, condition):
        """Until the counts fit: an answer is counted a moment after it was sent."""
        deadline = time.monotonic() + 60
        while not condition(counts := self.taken()):
            assert time.monotonic() < deadline, counts
            time.sleep(0.02)

    def close(self):
        self.proxy.terminate()
        self.proxy.wait(60)
        for replica in self.replicas:
            replica.process.kill()
            replica.process.wait(60)


@pytest.fixture(params=PROXIES)
def site(request, config, tmp_path):
    site = Site(request.param, config, tmp_path)
    yield site
    site.close()


def test_prompts_of_one_word_reach_one_replica(site):
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
    for number, word in enumerate(("tea", "coffee", "milk", "water")):
        site.wait_for(lambda counts: sum(counts) == 4 * number)
        before = site.taken()
        for turn in range(4):
            text, _ = site.complete(connection, f"{word} is what people drink when they are thirsty, " * (turn + 1), word)
        cached = json.loads(text)["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached > 0, "the replica has read the beginning"
        site.wait_for(lambda counts: sorted(n - old for n, old in zip(counts, before)) == [0, 0, 4])


def test_prompts_without_a_word_are_spread(site):
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
    for i in range(30):
        site.complete(connection, "The")
    site.wait_for(lambda counts: sum(counts) == 30 and min(counts) > 0)


def test_a_stream_passes_word_by_word(site):
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
    body = json.dumps({"prompt": "The", "max_tokens": 480, "stream": True, "ignore_eos": True})
    for _ in range(20):
        connection.request("POST", "/v1/completions", body)
        reply = connection.getresponse()
        assert reply.readline().startswith(b"data: ")
        running = sum(replica.health()["running"] for replica in site.replicas)
        assert reply.read().endswith(b"data: [DONE]\n\n")
        if running:
            return
    raise AssertionError("no first word came while the others were still written")


def load(site, stop, number):
    """Requests one after the other, half of the clients with a word, every third request as a stream."""
    connection, answers = None, []
    while not stop.is_set():
        connection = connection or http.client.HTTPConnection("127.0.0.1", site.port, timeout=120)
        prefix = f"client-{number}" if number % 2 else None
        text, closes = site.complete(connection, "The", prefix, max_tokens=8, stream=len(answers) % 3 == 0)
        answers.append(text)
        if closes:
            connection.close()
            connection = None
    return answers


def test_no_request_fails_in_a_rolling_restart(site):
    stop = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        try:
            loads = [pool.submit(load, site, stop, number) for number in range(6)]
            for replica in site.replicas:
                assert replica.stop() == 0, replica.log.read_text()
                replica.start()
                while replica.request("GET", "/readyz").status != 200:
                    time.sleep(0.05)
            site.wait_for(lambda counts: min(counts) > 0)
        finally:
            stop.set()
        answers = [answer for one in loads for answer in one.result(120)]
    whole = {json.loads(answer)["choices"][0]["text"] for answer in answers if not answer.startswith(b"data:")}
    streams = [answer for answer in answers if answer.startswith(b"data:")]
    print(f"{len(answers)} requests, {len(streams)} of them streams, none failed")
    assert len(whole) == 1 and len(answers) > 60
    assert all(answer.endswith(b"data: [DONE]\n\n") for answer in streams)


def test_a_replica_that_dies_is_left_out(site):
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
    site.replicas[1].process.kill()
    site.replicas[1].process.wait(60)
    for i in range(20):
        site.complete(connection, "The", f"word-{i}")
