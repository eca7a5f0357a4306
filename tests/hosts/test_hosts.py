"""Ranks on several machines (network.py): the same text as one process writes, over a network with delay and loss; and
what every rank says when a cable is pulled (make hosts-test)."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import threading
import time

import pytest

from network import Network, Unavailable

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
MODEL = ROOT / "models/retro-docs"
PORT, HTTP = 7000, 8080
REQUEST = {"prompt": "The fork() system call", "max_tokens": 6, "temperature": 0.8, "seed": 3, "ignore_eos": True,
           "retrieval": {"neighbors": ["fork() creates a new process by duplicating the calling process."]}}
LONG = {**REQUEST, "max_tokens": 400}
# parallel.tensor, parallel.pipeline, and the machine of each rank.
SHAPES = {"tensor": (2, 1, "ab"), "pipeline": (1, 2, "ab"), "both": (2, 2, "abcc")}
TIMEOUT = 12


def options(**values):
    return [word for key, value in values.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]


@pytest.fixture
def network():
    try:
        net = Network("a", "b", "c")
    except (Unavailable, OSError) as e:
        pytest.skip(f"skipped: no network namespaces with taps here: {e}")
    yield net
    net.close()


class Job:
    """A server's ranks on their machines."""

    def __init__(self, folder, net, shape, **values):
        self.machines = {m.name: m for m in net.machines}
        self.tensor, self.pipeline, self.places = SHAPES[shape]
        secret = folder / "secret"
        secret.write_text("a secret that is long enough\n")
        folder = folder / str(len(list(folder.iterdir())))
        folder.mkdir()
        values = {"model.path": MODEL, "server.host": "10.99.0.1", "server.port": HTTP, "model.threads": 1,
                  "parallel.tensor": self.tensor, "parallel.pipeline": self.pipeline, "parallel.comm": "sockets",
                  "parallel.rendezvous": f"10.99.0.1:{PORT}", "parallel.secret_file": secret,
                  "parallel.timeout": TIMEOUT, **values}
        self.logs, self.processes = [], []
        for rank, place in enumerate(self.places):
            self.logs.append(folder / f"{rank}.log")
            command = [BUILD / "retro-server", *options(**values, parallel__rank=rank)]
            with self.logs[-1].open("w") as out:
                self.processes.append(subprocess.Popen(self.machines[place].command(*command), stdout=out, stderr=out))

    def log(self):
        return "".join(f"rank {r}: {log.read_text()}" for r, log in enumerate(self.logs))

    def ready(self):
        deadline = time.monotonic() + 120
        while "listening on" not in self.logs[0].read_text():
            assert time.monotonic() < deadline and self.processes[0].poll() is None, self.log()
            time.sleep(0.02)
        return self

    def ask(self, path, body=None):
        """(status, answer), asked on machine a."""
        data = ["-d", json.dumps(body)] if body else []
        done = subprocess.run(self.machines["a"].command("curl", "-s", "-m", 240, "-w", "\n%{http_code}", *data,
                                                         f"http://10.99.0.1:{HTTP}{path}"), capture_output=True, text=True)
        answer, _, status = done.stdout.rpartition("\n")
        return int(status), answer

    def text(self, request=REQUEST):
        status, answer = self.ask("/v1/completions", request)
        assert status == 200, answer + self.log()
        return json.loads(answer)["choices"][0]["text"]

    def stop(self):
        self.processes[0].terminate()
        assert [p.wait(60) for p in self.processes] == [0] * len(self.processes), self.log()

    def end(self, seconds):
        """Waits until all ranks have failed; seconds until the last had."""
        begin = time.monotonic()
        statuses = [p.wait(max(0, begin + seconds - time.monotonic())) for p in self.processes]
        assert all(status > 0 for status in statuses), self.log()
        return time.monotonic() - begin

    def kill(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.fixture
def start(network, tmp_path):
    jobs = []

    def start_one(shape, **values):
        jobs.append(Job(tmp_path, network, shape, **values))
        return jobs[-1]

    yield start_one
    for job in jobs:
        job.kill()


@pytest.fixture(scope="session")
def alone(tmp_path_factory):
    """What threads of one process write, for each number of ranks in a stage: stages change nothing."""
    texts = {}
    for tensor in (1, 2):
        log = tmp_path_factory.mktemp("alone") / "log"
        with log.open("w") as out:
            server = subprocess.Popen([BUILD / "retro-server", *options(model__path=MODEL, server__port=0,
                                       parallel__tensor=tensor, parallel__comm="threads" if tensor > 1 else "single")],
                                      stdout=out, stderr=out)
        while not (port := re.search(r"listening on http://127\.0\.0\.1:(\d+)", log.read_text())):
            assert server.poll() is None, log.read_text()
            time.sleep(0.02)
        done = subprocess.run(["curl", "-s", "-d", json.dumps(REQUEST), f"http://127.0.0.1:{port[1]}/v1/completions"],
                              capture_output=True, text=True, check=True)
        texts[tensor] = json.loads(done.stdout)["choices"][0]["text"]
        server.terminate()
        assert server.wait(60) == 0
    return texts


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_text(start, network, alone, shape):
    """Over a fast network, and over one that holds frames back for 20 ms each way and loses one in a hundred."""
    job = start(shape, **{"parallel.timeout": 60}).ready()
    expected = alone[job.tensor]
    assert job.text() == expected
    network.delay, network.loss = 0.02, 0.01
    begin = time.monotonic()
    assert job.text() == expected
    assert time.monotonic() - begin > 6 * 2 * network.delay, "nothing was delayed"
    network.delay = network.loss = 0
    job.stop()


def pull_while_writing(job, network, pulled):
    """Pulls a machine's cable within an answer; (the answer's status, seconds until all ranks had ended)."""
    answers = []
    network.delay = 0.005
    client = threading.Thread(target=lambda: answers.append(job.ask("/v1/completions", LONG)))
    client.start()
    time.sleep(0.5)
    assert not answers
    pulled.cable(False)
    seconds = job.end(60)
    client.join(60)
    pulled.cable(True)
    network.delay = 0
    return answers[0], seconds


def check_errors(job, cut_off):
    """Ranks beside the cable name those behind it, with their machine; those behind it name the others."""
    for rank, place in enumerate(job.places):
        text = job.logs[rank].read_text()
        others = [r for r, other in enumerate(job.places) if (other == cut_off) != (place == cut_off)]
        named = [r for r in others if f"rank {r} on {job.places[r]} ({job.machines[job.places[r]].address})" in text]
        assert named and "heard nothing for" in text, job.log()


@pytest.mark.parametrize("shape, cut_off", [("tensor", "b"), ("pipeline", "b"), ("both", "b"), ("both", "c")])
def test_a_pulled_cable(start, network, alone, shape, cut_off):
    job = start(shape).ready()
    pulled = job.machines[cut_off]
    (status, answer), seconds = pull_while_writing(job, network, pulled)
    assert status == 503 and "device_failed" in answer, answer + job.log()
    assert seconds < TIMEOUT + 10, job.log()
    check_errors(job, cut_off)
    again = start(shape).ready()
    assert again.text() == alone[again.tensor]
    again.stop()


def test_a_cable_pulled_without_work(start, network):
    """Readiness goes first, then the server."""
    job = start("tensor", **{"server.drain_delay": 4}).ready()
    assert job.ask("/readyz")[0] == 200
    job.machines["b"].cable(False)
    begin = time.monotonic()
    while job.ask("/readyz")[0] == 200:
        assert time.monotonic() - begin < TIMEOUT + 10, job.log()
    assert job.ask("/readyz")[0] == 503
    job.end(60)
    check_errors(job, "b")


def test_a_cable_that_comes_back(start, network, alone):
    """Before the time is over nothing is lost but time."""
    job = start("both", **{"parallel.timeout": 20}).ready()
    network.delay = 0.01
    texts = []
    client = threading.Thread(target=lambda: texts.append(job.text()))
    client.start()
    time.sleep(0.3)
    job.machines["c"].cable(False)
    time.sleep(2)
    job.machines["c"].cable(True)
    client.join(120)
    assert texts == [alone[job.tensor]], job.log()
    network.delay = 0
    job.stop()


def test_machines_that_do_not_reach_each_other(start, network):
    """A firewall between b and c: both reach rank 0, and say whom they miss."""
    network.cut = {("b", "c")}
    job = start("both", **{"parallel.timeout": 4})
    job.end(60)
    assert re.search(r"rank [23] on c cannot join rank 1 on b \(10.99.0.2 port 7001\): ", job.log()), job.log()


def test_an_address_of_nobody(start, network):
    job = start("tensor", **{"parallel.rendezvous": "10.99.0.9:7000", "parallel.timeout": 4})
    job.end(60)
    assert "cannot listen for other ranks at 10.99.0.9 port 7000: " in job.logs[0].read_text(), job.log()
    assert re.search(r"rank 1 on b waited 4 s \(parallel.timeout\) for rank 0 at 10.99.0.9:7000: ",
                     job.logs[1].read_text()), job.log()


needs_mpi = pytest.mark.skipif(
    shutil.which("mpirun") is None or
    "libmpi" not in subprocess.run(["ldd", BUILD / "retro-eval"], capture_output=True, text=True).stdout,
    reason="skipped: built without MPI, or no mpirun")


@needs_mpi
def test_mpirun(network, tmp_path):
    """mpirun on a, which starts its daemon on b through nsenter in the place of ssh: the logits are those of threads."""
    case, agent = ROOT / "tests/golden/retro/case_a", tmp_path / "agent"
    places = "\n".join(f"{m.address}) pid={m.pid};;" for m in network.machines)
    agent.write_text(f'#!/bin/bash\ncase $1 in\n{places}\nesac\nshift\nexec nsenter -t $pid -n -u bash -c "$*"\n')
    agent.chmod(0o755)
    parity = [BUILD / "retro-eval", "parity", "--tolerance", "2e-4", "--set", "parallel.tensor=2"]
    settings = {"plm_rsh_agent": agent, "btl": "tcp,self", "btl_tcp_if_include": "10.99.0.0/24",
                "oob_tcp_if_include": "10.99.0.0/24"}
    job = network.machines[0].command(
        "mpirun", "-n", 2, "--host", "10.99.0.1:1,10.99.0.2:1", "--bind-to", "none", "--leave-session-attached",
        *[word for name, value in settings.items() for word in ("--mca", name, value)], *parity, case)
    allowed = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(job, capture_output=True, text=True, env=allowed, timeout=120)
    threads = subprocess.run([*parity, "--set", "parallel.comm=threads", case], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout == threads.stdout, done.stdout + done.stderr
    assert min(network.bytes["a"], network.bytes["b"]) > 1e5, "nothing went over the network"
