"""Several ranks from the outside: retro-eval parity and the server, over threads and under mpirun, and what happens when
a rank is killed or hangs."""
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
MODEL = ROOT / "models/retro-docs"
CONFIG = json.loads((MODEL / "config.json").read_text())
SHARED = [CONFIG["num_attention_heads"], CONFIG["num_query_groups"], CONFIG["ffn_hidden_size"]]
RANKS = next(n for n in range(2, 65) if all(part % n == 0 for part in SHARED))
WRONG = next(n for n in range(2, 65) if CONFIG["num_attention_heads"] % n)
FOLDERS = sorted(p.parent for p in (ROOT / "tests/golden/retro").glob("*/config.json"))
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

libraries = subprocess.run(["ldd", BUILD / "retro-server"], capture_output=True, text=True).stdout
needs_mpi = pytest.mark.skipif(
    shutil.which("mpirun") is None or "libmpi" not in libraries, reason="built without MPI, or no mpirun")


def launcher(comm, ranks):
    if comm != "mpi":
        return []
    return ["mpirun", "-n", str(ranks), "--oversubscribe", "--bind-to", "none"]


def options(**values):
    return [word for key, value in values.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]


def parity(comm, tensor, pipeline, *folders):
    command = [*launcher(comm, tensor * pipeline), BUILD / "retro-eval", "parity", "--tolerance", "2e-4",
               *options(parallel__tensor=tensor, parallel__pipeline=pipeline, parallel__micro_batch_rows=20,
                        parallel__comm=comm), *folders]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=300)


class Server:
    def __init__(self, log, comm, tensor, pipeline=1, **values):
        self.log = log
        values = {"model.path": MODEL, "server.port": 0, "server.max_sequences": 3, "parallel.tensor": tensor,
                  "parallel.pipeline": pipeline, "parallel.comm": comm, **values}
        with log.open("w") as out:
            self.process = subprocess.Popen(
                [*launcher(comm, tensor * pipeline), BUILD / "retro-server", *options(**values)],
                stdout=out, stderr=out, env=ENVIRONMENT)
        self.port = self.wait_for(r"listening on http://127\.0\.0\.1:(\d+)", 60)

    def wait_for(self, pattern, seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = re.search(pattern, self.log.read_text())
            if found:
                return int(found[1])
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)
        raise AssertionError(f"no {pattern}:\n{self.log.read_text()}")

    def complete(self, **fields):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "The fork() system call", **fields}))
        response = connection.getresponse()
        body = response.read()
        connection.close()
        assert response.status == 200, body
        return [choice["text"] for choice in json.loads(body)["choices"]]

    def rank(self, number):
        """The process id of a rank of mpirun's."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in children:
            if f"OMPI_COMM_WORLD_RANK={number}\0" in pathlib.Path(f"/proc/{pid}/environ").read_text():
                return int(pid)
        raise AssertionError(f"no rank {number} among {children}")

    def end(self):
        """mpirun gives its children little time, so rank 0 is the one to stop."""
        pid = self.process.pid if self.process.args[0] != "mpirun" else self.rank(0)
        os.kill(pid, signal.SIGTERM)
        return self.process.wait(30)


@pytest.fixture
def start(tmp_path):
    servers = []

    def start_one(*arguments, **values):
        servers.append(Server(tmp_path / f"server-{len(servers)}.log", *arguments, **values))
        return servers[-1]

    yield start_one
    for server in servers:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait(10)


@needs_mpi
@pytest.mark.parametrize("tensor, pipeline", [(2, 1), (4, 1), (1, 2), (2, 2)])
def test_reference_logits_under_mpirun(tensor, pipeline):
    done = parity("mpi", tensor, pipeline, *FOLDERS)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) > 10 and all("tokens=ok" in line for line in lines[:-1]) and lines[-1].endswith(" 0 failed")
    repeat = parity("mpi", tensor, pipeline, FOLDERS[1]).stdout.splitlines()
    assert len(repeat) > 3 and repeat[:-1] == [line for line in lines if line.startswith(str(FOLDERS[1]) + "/")]
    assert done.stdout == parity("threads", tensor, 1, *FOLDERS).stdout, "threads add in the same order"


REQUESTS = [
    dict(max_tokens=40, temperature=0, ignore_eos=True),
    dict(max_tokens=40, temperature=0.9, seed=5, ignore_eos=True),
    dict(max_tokens=80, temperature=0.7, seed=6, ignore_eos=True,
         retrieval={"neighbors": ["fork() creates a new process by duplicating the calling process."]}),
]


@needs_mpi
@pytest.mark.parametrize("tensor, pipeline", [(RANKS, 1), (1, 2)])
def test_serving(start, tensor, pipeline):
    """Threads and processes write the same text, each time."""
    texts = []
    for comm in ("threads", "mpi"):
        server = start(comm, tensor, pipeline)
        assert f"rank 0 of {tensor * pipeline}, {comm}" in server.log.read_text()
        texts += [[server.complete(**request) for request in REQUESTS] for _ in range(2)]
        assert server.end() == 0, server.log.read_text()
    assert texts[0] == texts[1] == texts[2] == texts[3]
    assert len(set(map(tuple, texts[0]))) == len(REQUESTS)


def test_stages_change_nothing(start):
    """A step of several sequences, done in turn over three stages, is bit by bit the step of one rank."""
    request = dict(prompt=["The fork() system call", "A signal is", "To read a file"], max_tokens=30, temperature=0.8,
                   seed=3, ignore_eos=True, retrieval=REQUESTS[2]["retrieval"])
    alone, staged = start("single", 1), start("auto", 1, 3, **{"parallel.micro_batch_rows": 1})
    assert alone.complete(**request) == staged.complete(**request)
    assert alone.end() == 0 and staged.end() == 0


def test_serving_over_threads(start):
    server = start("auto", RANKS)
    first = [server.complete(**request) for request in REQUESTS]
    assert [server.complete(**request) for request in REQUESTS] == first
    assert server.end() == 0, server.log.read_text()


def stop_while_serving(server, rank, how):
    """Sends a signal to a rank in the middle of answers that follow each other; the seconds until the job has ended."""
    broken = []

    def ask():
        try:
            while True:
                server.complete(max_tokens=400, ignore_eos=True)
        except (OSError, http.client.HTTPException, AssertionError) as e:
            broken.append(e)

    client = threading.Thread(target=ask)
    client.start()
    time.sleep(0.3)
    os.kill(server.rank(rank), how)
    begin = time.monotonic()
    status = server.process.wait(30)
    seconds = time.monotonic() - begin
    client.join(30)
    assert status != 0 and broken, server.log.read_text()
    return seconds


@needs_mpi
@pytest.mark.parametrize("rank", range(RANKS))
def test_a_killed_rank_ends_the_job(start, rank):
    server = start("mpi", RANKS)
    assert stop_while_serving(server, rank, signal.SIGKILL) < 5
    assert re.search(rf"process rank {rank} .* exited on signal 9", server.log.read_text()), server.log.read_text()


@needs_mpi
def test_a_hanging_rank_ends_the_job(start):
    server = start("mpi", RANKS, **{"parallel.timeout": 1})
    assert stop_while_serving(server, 1, signal.SIGSTOP) < 10
    assert "waited 1 s for the others (parallel.timeout)" in server.log.read_text()


@needs_mpi
def test_wrong_number_of_processes():
    done = subprocess.run([*launcher("mpi", 2), BUILD / "retro-eval", "parity",
                           *options(parallel__tensor=4, parallel__comm="mpi"), FOLDERS[0]],
                          capture_output=True, text=True, env=ENVIRONMENT, timeout=60)
    assert done.returncode != 0
    assert "parallel.tensor times parallel.pipeline is 4 and the MPI job has 2 processes; start it with mpirun -n 4" in done.stderr


def test_a_size_the_model_does_not_allow():
    done = subprocess.run([BUILD / "retro-server", *options(model__path=MODEL, parallel__tensor=WRONG)],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"attention heads cannot be shared evenly by {WRONG} ranks; this model runs on 1" in done.stderr


@pytest.mark.parametrize("device, comm, words", [
    ("cpu", "nccl", "parallel.comm is nccl, which is for GPUs"),
    ("cuda", "threads", "ranks that are threads need model.device cpu, and it is cuda; use nccl"),
    ("cuda-host", "threads", "ranks that are threads need model.device cpu, and it is cuda-host; use mpi"),
])
def test_devices_and_ranks(device, comm, words):
    done = subprocess.run([BUILD / "retro-server", *options(model__path=MODEL, model__device=device,
                                                            parallel__tensor=RANKS, parallel__comm=comm)],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and words in done.stderr, done.stderr
