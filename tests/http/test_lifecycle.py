"""Start, full queues, clients that leave, and the end."""
import concurrent.futures
import ctypes
import http.client
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import time

import pytest

from conftest import BUILD, CONTEXT, DEPS, MODEL, NEIGHBORS, ROOT, Server

LONG = dict(max_tokens=480, ignore_eos=True, temperature=0)
SOON = 0.2 + 0.1  # the promise, and what polling /health adds
THREADS = 2  # of a step, and of the embedder


def idle(health):
    return health["running"] == 0 and health["waiting"] == 0 and health["parked"] == 0


def cpu_seconds(server):
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_until_soon(server, condition):
    """It holds before the server has worked for longer than is promised: its processor's seconds, whatever else the machine does."""
    before = cpu_seconds(server)
    server.wait_until(condition, 60)
    used = cpu_seconds(server) - before
    assert used < THREADS * SOON, used


def send(server, body):
    """A request whose answer nobody reads."""
    s = server.socket()
    data = json.dumps(body).encode()
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    return s


def test_names_steer_no_terminal(start, tmp_path):
    """The name of a folder is one of a line of the log, escaped."""
    folder = tmp_path / "mo\x1b[31mdel\n2"
    folder.symlink_to(ROOT / "models" / MODEL)
    log = start(f"model.path={folder}").log.read_text()
    assert rf"{tmp_path}/mo\x1b[31mdel\n2" in log
    assert "\x1b" not in log and all(re.match(r"\d{4}-\d\d-\d\dT", line) for line in log.splitlines())


def test_leaving_a_stream(server):
    before = server.health()["generated_tokens"]
    streams = [server.stream("The", **LONG) for _ in range(4)]
    for stream in streams:
        next(iter(stream))
    for stream in streams:
        stream.close()
    wait_until_soon(server, idle)
    assert server.health()["generated_tokens"] - before < 4 * 480


@pytest.mark.parametrize("stream", [False, True])
def test_leaving_while_running_and_queued(start, stream):
    """One sequence at a time: the first prompt runs, the others wait."""
    server = start("server.max_sequences=1")
    first = send(server, {"prompt": ["The"] * 16, "stream": stream, **LONG})
    server.wait_until(lambda h: h["running"] == 1 and h["waiting"] == 15, 60)
    second = send(server, {"prompt": ["The"] * 16, "stream": stream, **LONG})
    server.wait_until(lambda h: h["waiting"] > 20, 60)
    second.close()
    wait_until_soon(server, lambda h: h["waiting"] <= 15)
    assert server.health()["running"] == 1, "the other request goes on"
    first.close()
    wait_until_soon(server, idle)
    assert server.health()["generated_tokens"] < 16 * 480


def test_leaving_during_a_long_prompt(start):
    server = start("server.max_step_tokens=1", "server.max_sequences=1")
    ids = [(7 * i) % 8000 + 100 for i in range(500)]
    s = send(server, {"prompt": [ids] * 8, "max_tokens": 1})
    server.wait_until(lambda h: h["prompt_tokens"] > 0, 60)
    s.close()
    wait_until_soon(server, idle)
    assert server.health()["prompt_tokens"] < 8 * 500


@pytest.mark.parametrize("retrieval", [True, False])
def test_leaving_long_prompts_of_many(start, retrieval):
    """Eight clients leave while their prompts are read, or wait for their neighbours: soon nothing is computed."""
    server = start("server.max_sequences=8", *([] if retrieval else ["retrieval.collection="]))

    def leave(wait):
        prompts = [[[(7 * i + 31 * c + 97 * p) % 8000 + 100 for i in range(500)] for p in range(2)] for c in range(8)]
        clients = [send(server, {"prompt": p, "max_tokens": 1}) for p in prompts]
        server.wait_until(lambda h: h["running"] > 0, 60)
        time.sleep(wait)
        for client in clients:
            client.close()
        wait_until_soon(server, idle)
        before = cpu_seconds(server)
        time.sleep(0.5)
        return cpu_seconds(server) - before

    # The embedder and a step end at their next stop; 16 prompts take some seconds.
    used = sorted(leave(0.03 * i) for i in range(7))
    assert used[3] < THREADS * SOON, used


@pytest.mark.hostile
def test_many_come_and_go(server):
    """Clients that leave at any moment: parked, in a step, between events."""

    def visit(i):
        if i % 3 == 0:
            send(server, {"prompt": "The" * (i % 50 + 1), **LONG}).close()
        elif i % 3 == 1:
            stream = server.stream("word " * (i % 90 + 1), max_tokens=100, seed=i)
            for _, _event in zip(range(i % 7), stream):
                pass
            stream.close()
        else:
            s = send(server, {"prompt": "The", "stream": True, **LONG})
            time.sleep(i % 5 * 0.01)
            s.shutdown(socket.SHUT_WR)
            s.close()

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(visit, range(60)))
    server.wait_until(idle, 60)
    assert server.complete("The", max_tokens=2, ignore_eos=True)["usage"]["completion_tokens"] == 2


@pytest.mark.hostile
def test_a_client_that_leaves_keeps_no_connection(start):
    """Sent and closed in one go, at any point of a request: the close must be seen behind what was sent."""
    server = start()

    def open_files():
        return len(os.listdir(f"/proc/{server.process.pid}/fd"))

    whole = b'{"prompt": "The", "max_tokens": 2, "stream": true}'
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(whole)
    before = open_files()
    for data in (b"POST /v1", head, head + whole[:9], head + whole, 2 * (head + whole), b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        for _ in range(20):
            with server.socket() as s:
                s.sendall(data)
    deadline = time.monotonic() + 5
    while open_files() > before:
        assert time.monotonic() < deadline, f"{open_files() - before} connections of clients that left are open"
        time.sleep(0.01)


def test_a_full_queue_is_503(start):
    server = start("server.max_sequences=1", "server.max_queue=2")
    first = send(server, {"prompt": ["The"] * 3, **LONG})
    server.wait_until(lambda h: h["running"] == 1 and h["waiting"] == 2, 60)
    reply = server.post({"prompt": "The"})
    assert reply.status == 503 and reply.headers["Retry-After"]
    error = reply.error()
    assert error["code"] == "server_busy" and error["type"] == "server_error"
    assert "3 prompts are running or waiting and this request has 1; the limit is 3" in error["message"]
    assert server.health()["status"] == "ok"
    first.close()
    wait_until_soon(server, idle)
    assert server.complete("The", max_tokens=1)["usage"]["completion_tokens"] == 1


def test_a_request_that_can_never_fit(start, config):
    """16 prompts, and room for 5: that is said at once and for good, on an idle server."""
    small = ("server.max_sequences=1", "server.max_queue=4")
    server = start(*small)
    reply = server.post({"prompt": ["The"] * 16, "max_tokens": 1})
    assert reply.status == 413 and "Retry-After" not in reply.headers
    message = reply.error()["message"]
    assert "has 16 prompts" in message and "server.max_sequences 1 and server.max_queue 4" in message
    assert len(server.complete(["The"] * 5, max_tokens=1)["choices"]) == 5
    sets = [a for s in small for a in ("--set", s)]
    checked = run("--config", config, "--check-config", *sets)
    assert checked.returncode == 1 and checked.stdout == ""
    for words in ("server.max_prompts is 16", "server.max_sequences 1", "server.max_queue 4"):
        assert words in checked.stderr and words in server.log.read_text()
    assert run("--config", config, "--check-config", *sets, "--set", "server.max_prompts=5").returncode == 0


def test_retry_after_is_the_wait(start):
    """The sequence that runs must end before there is a place: that takes as long as its tokens do."""
    server = start("server.max_sequences=1", "server.max_queue=1", "retrieval.collection=")
    started = time.monotonic()
    assert server.complete("The", **LONG)["usage"]["completion_tokens"] == 480
    seconds = time.monotonic() - started
    busy = send(server, {"prompt": ["The"] * 2, **LONG})
    server.wait_until(lambda h: h["running"] == 1 and h["waiting"] == 1, 60)
    reply = server.post({"prompt": "The"})
    assert reply.status == 503
    assert 1 <= int(reply.headers["Retry-After"]) <= 3 * seconds + 1
    busy.close()
    wait_until_soon(server, idle)


def test_retry_after_grows_with_the_queue(start):
    """An array may go over the limit by what it has beyond one; then several must end before there is a place."""
    server = start("server.max_sequences=2", "server.max_queue=14", "retrieval.collection=")
    server.complete(["The"] * 2, **LONG)  # the speed is measured
    first = [send(server, {"prompt": "The", **LONG}) for _ in range(15)]
    server.wait_until(lambda h: h["running"] == 2 and h["waiting"] == 13, 60)
    array = send(server, {"prompt": ["The"] * 16, **LONG})
    server.wait_until(lambda h: h["waiting"] == 29, 60)
    seconds, deadline = 0, time.monotonic() + 20
    while seconds < 2 and time.monotonic() < deadline:  # the engine reckons with the array once it has taken it in
        reply = server.post({"prompt": "The"})
        assert reply.status == 503
        seconds = int(reply.headers["Retry-After"])
    assert 2 <= seconds <= 60
    for s in [*first, array]:
        s.close()
    wait_until_soon(server, idle)


def test_arrays_do_not_keep_a_single_prompt_waiting(start):
    """Four arrays take all sequences and wait for more; at most one prompt of each goes before it.

    A busy machine may keep the prompt from the server for as long as many others take: then it is sent again."""
    server = start("server.max_sequences=4", "retrieval.collection=")
    ask = dict(max_tokens=60, ignore_eos=True, temperature=0)
    written = []
    while not written or (written[-1] >= 5 * 4 * 60 and len(written) < 6):
        arrays = [send(server, {"prompt": ["The"] * 16, **ask}) for _ in range(4)]
        server.wait_until(lambda h: h["running"] == 4 and h["waiting"] == 60, 60)
        before = server.health()["generated_tokens"]
        server.complete("The", **ask)
        written.append(server.health()["generated_tokens"] - before)
        for s in arrays:
            s.close()
        wait_until_soon(server, idle)
    assert written[-1] < 5 * 4 * 60, f"{written} tokens were written before the answer"


def test_arrays_are_refused_no_more_often(start):
    """One free place is enough for a request, whatever the number of its prompts."""
    server = start("server.max_sequences=2", "server.max_queue=6")
    singles = [send(server, {"prompt": "The", **LONG}) for _ in range(7)]
    server.wait_until(lambda h: h["running"] + h["waiting"] == 7, 60)
    array = send(server, {"prompt": ["The"] * 8, **LONG})
    server.wait_until(lambda h: h["running"] + h["waiting"] == 15, 60)
    assert server.post({"prompt": "The"}).status == 503
    for s in [*singles, array]:
        s.close()
    wait_until_soon(server, idle)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_finishes_what_runs(start, number):
    server = start()
    stream = server.stream("The", **LONG)
    events = iter(stream)
    next(events)
    server.process.send_signal(number)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", server.port), timeout=1).close()
        except ConnectionRefusedError:
            break
        time.sleep(0.005)
    else:
        raise AssertionError("new connections are still accepted")
    rest = list(events)
    assert stream.done and rest[-1]["choices"][0]["finish_reason"] == "length"
    assert server.process.wait(10) == 0


def test_a_signal_may_reach_any_thread(start):
    """Libraries start threads before main; where these take the signal it must not end the process."""
    server = start()
    pid = server.process.pid
    stream = server.stream("The", **LONG)
    next(events := iter(stream))
    oldest = min(int(t) for t in os.listdir(f"/proc/{pid}/task") if int(t) != pid)
    assert ctypes.CDLL(None).tgkill(pid, oldest, signal.SIGTERM) == 0
    assert list(events) and stream.done
    assert server.process.wait(10) == 0


def test_a_kept_connection_is_refused_while_stopping(start):
    server = start()
    kept = server.socket()
    file = kept.makefile("rb")
    kept.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"200" in file.readline()
    while file.readline() != b"\r\n":
        pass
    file.read1()
    stream = server.stream("The", **LONG)
    next(iter(stream))
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.05)
    kept.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\n\r\n" + b'{"prompt": "The"}'[:16])
    assert b"503" in file.readline()
    assert list(stream) and stream.done
    assert server.process.wait(10) == 0


def test_drain_timeout_ends_the_rest(start):
    server = start("server.drain_timeout=0", "server.max_sequences=1")
    stream = server.stream(["The"] * 16, **LONG)
    events = iter(stream)
    next(events)
    server.process.send_signal(signal.SIGTERM)
    assert "error" in list(events)[-1] and stream.done
    assert server.process.wait(20) == 0


def test_a_second_signal_ends_the_waiting(start):
    server = start("server.max_sequences=1")
    s = send(server, {"prompt": ["The"] * 16, **LONG})
    server.wait_until(lambda h: h["running"] == 1, 60)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    assert server.process.poll() is None
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(20) == 0
    assert b" 503 " in s.makefile("rb").readline()


def run(*arguments, prefix=()):
    return subprocess.run([*prefix, BUILD / "retro-server", *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("program", ["retro-server", "retro-index", "retro-eval", "retro-bench", "retro-convert"])
def test_output_that_cannot_be_written_is_an_error(program):
    with open("/dev/full", "w") as full:
        told = subprocess.run([BUILD / program, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert told.returncode == 1
    assert told.stderr == f"{program}: standard output: not everything could be written: No space left on device\n"


def test_command_line(config):
    version = run("--version")
    assert version.returncode == 0 and version.stdout.startswith("retro-server ")
    text = run("--help")
    assert text.returncode == 0 and "server.max_queue" in text.stdout
    assert run("--config", config, "--check-config").returncode == 0
    shown = run("--config", config, "--set", "retrieval.k=1", "--print-config")
    assert json.loads(shown.stdout)["retrieval"]["k"] == 1
    for arguments, words in [
        (["--nope"], "unknown option --nope"),
        (["--config"], "--config needs a value"),
        (["extra"], "extra: the model, a folder or a GGUF file"),
        (["--config", "/nowhere.json"], "/nowhere.json"),
        (["--set", "server.prot=1"], "server.port"),
        ([], "there is no model: retro-server MODEL DOCUMENTS"),
        (["--set", "server.port=0", "--set", "model.path=/nowhere"], "/nowhere"),
        (["--config", str(config), "--set", f"server.max_context={CONTEXT + 1}"], f"the model's limit is {CONTEXT}"),
        (["--config", str(config), "--set", "retrieval.max_k=1"], f"the model reads {NEIGHBORS} neighbours, retrieval.max_k is 1"),
        (["--config", str(config), "--set", "retrieval.collection=/nowhere"], "/nowhere"),
        (["--config", str(config), "--set", "retrieval.device=cuda:999"], "retrieval.device: cuda:999: "),
        (["--config", str(config), "--set", "server.host=nowhere.invalid"], "server.host nowhere.invalid"),
    ]:
        failed = run(*arguments)
        assert failed.returncode == 1 and words in failed.stderr, failed.stderr


def test_a_port_in_use(server, config):
    """Said before anything is loaded, so before a model that is not there is missed."""
    for sets in [[], ["--set", "model.path=/nowhere"]]:
        failed = run("--config", config, "--set", f"server.port={server.port}", *sets)
        assert failed.returncode == 1 and f"server.port {server.port}: listen: Address already in use" in failed.stderr
        assert "model " not in failed.stderr


def test_connections_need_open_files(config, start):
    """The limit is raised where it may be, else named; at the limit the HTTP library would spin."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        server = start()
        failed = run("--config", config, "--set", "server.port=0", prefix=["prlimit", "--nofile=200:200"])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)[0] == 256 + 128
    assert failed.returncode == 1
    assert "server.max_connections 256 needs 384 open files, this process may have 200" in failed.stderr


def test_what_memory_does_not_hold_is_refused_at_once(config):
    sets = ["--set", "server.max_sequences=4096", "--set", "server.max_step_tokens=1048576"]
    started = time.monotonic()
    failed = run("--config", config, *sets)
    assert failed.returncode == 1 and time.monotonic() - started < 10
    for words in ("not enough memory: weights ", ", cache ", " GB are available: lower ", "server.max_step_tokens (1048576)"):
        assert words in failed.stderr, failed.stderr


@pytest.mark.parametrize("program", ["retro-server", "retro-index", "retro-eval", "retro-bench"])
def test_a_failed_start_ends_at_once_where_memory_is_short(program):
    """Libraries that could not start their threads must not be waited for. The first to fail, a library, a thread of ours
    or the folder that is not there, depends on the limit and on what else the build needs."""
    arguments = {
        "retro-server": ["--set", "server.port=0", "--set", "model.path=/nowhere"],
        "retro-index": ["stats", "/nowhere"],
        "retro-eval": ["embed", "/nowhere", "text"],
        "retro-bench": ["/nowhere"],
    }[program]
    started = 0
    for megabytes in [*range(50, 500, 50), *range(500, 2001, 250)]:
        command = ["prlimit", f"--as={megabytes}000000", BUILD / program, *arguments]
        failed = subprocess.run(command, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
        if "error while loading shared libraries" in failed.stderr:
            assert started == 0
        else:
            started += 1
            assert failed.returncode in (1, 2) and failed.stderr.startswith(program), (megabytes, failed.stderr)
    assert started > 0


SEARCH = {"query": "stop the server", "k": 5}, "/v1/retrieval/search"
COMPLETION = {"prompt": "stop the server", "max_tokens": 1}, "/v1/completions"


@pytest.mark.parametrize("name, request_", [("documents.text", SEARCH), ("documents", SEARCH), ("chunks.tokens", COMPLETION)])
def test_a_file_that_is_cut_in_place_is_named_as_the_cause(config, tmp_path, name, request_):
    folder = pathlib.Path(json.loads(config.read_text())["retrieval"]["collection"])
    copy = tmp_path / "collection"
    shutil.copytree(folder, copy)
    server = Server(config, tmp_path, f"retrieval.collection={copy}")
    (generation,) = (file.parent for file in copy.glob(f"*/{name}"))
    os.truncate(generation / name, 0)
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        server.post(*request_)
    assert server.process.wait(20) == 1
    assert "a file of the model or of the collection was cut" in server.log.read_text().splitlines()[-1]


def megabytes(part, log):
    found = re.search(rf"memory: [^\n]*{part} ([0-9.]+) (MB|GB)", log)
    assert found, log
    return float(found[1]) * (1000 if found[2] == "GB" else 1)


def test_memory_counts_what_is_retrieved_from(server, config):
    """The index and the embedder by their files; documents are mapped. All are named when something is too much."""
    folder = pathlib.Path(json.loads(config.read_text())["retrieval"]["collection"])
    generation = folder / (folder / "CURRENT").read_text().split()[0]
    sizes = {file.name: file.stat().st_size / 1e6 for file in generation.iterdir()}
    vectors = next(size for name, size in sizes.items() if name.startswith("vectors"))
    mapped = sum(sizes[name] for name in ("chunks.tokens", "chunks.offsets", "documents", "documents.text", "chunks.words"))
    embedder = (DEPS / "minilm/model.safetensors").stat().st_size / 1e6
    log = server.log.read_text()
    assert abs(megabytes("document index", log) - vectors) < 0.1
    assert abs(megabytes("documents", log) - mapped) < 0.1 and re.search(r"documents [0-9.]+ MB mapped, ", log)
    assert embedder - 1 < megabytes("embedder", log) < embedder + 20
    failed = run("--config", config, "--set", "server.max_sequences=4096", "--set", "server.max_step_tokens=1048576")
    for words in (", embedder ", ", document index ", ", documents "):
        assert words in failed.stderr, failed.stderr


def test_int8_keys_are_for_the_cpu(config):
    for more in ((), ("--check-config",)):
        failed = run("--config", config, "--set", "model.cache_dtype=int8", "--set", "model.device=cuda:0", *more)
        assert failed.returncode == 1 and "cuda" in failed.stderr
    assert "set model.cache_dtype to auto" in failed.stderr
    assert run("--config", config, "--set", "model.cache_dtype=int8", "--check-config").returncode == 0
    failed = run("--config", config, "--set", "model.cache_dtype=int4", "--check-config")
    assert failed.returncode == 1 and "auto, f32, f16, bf16, int8" in failed.stderr, failed.stderr


def test_int8_keys_take_half_the_memory(start):
    """Numbers of keys and values; the rows that condition the neighbour encoder stay as they are."""
    of = {}
    for dtype in ("f16", "int8"):
        server = start(f"model.cache_dtype={dtype}")
        of[dtype] = int(re.search(r"the cache has (\d+) bytes a token", server.log.read_text())[1])
        assert len(server.complete(["The"], max_tokens=4)["choices"]) == 1
    layers, heads, head_dim, hidden = 12, 4, 64, 256
    assert of["f16"] == 2 * layers * heads * head_dim * 2 + 4 * hidden
    assert of["int8"] == 2 * layers * heads * (head_dim + 2) + 4 * hidden


def test_check_config_looks_for_what_is_named(config, tmp_path):
    sets = {"model.path": tmp_path / "gone", "retrieval.collection": tmp_path, "retrieval.embedder": tmp_path / "config"}
    (tmp_path / "config").write_text("no folder")
    failed = run("--config", config, "--check-config", *(a for k, v in sets.items() for a in ("--set", f"{k}={v}")))
    assert failed.returncode == 1 and "3 folders" in failed.stderr and failed.stdout == ""
    for words in (
        f"model.path: {tmp_path / 'gone'}: No such file or directory",
        f"retrieval.collection: {tmp_path / 'CURRENT'}: No such file or directory; this is no collection",
        f"retrieval.embedder: {tmp_path / 'config' / 'config.json'}: Not a directory; this is no embedder folder",
    ):
        assert words in failed.stderr, failed.stderr


def test_check_config_lists_what_it_checked(config, tmp_path):
    fine = check(config)
    assert fine.returncode == 0 and fine.stdout == "the configuration is valid\n"
    collection = json.loads(config.read_text())["retrieval"]["collection"]
    for line in (
        f"checked: names, types and ranges of the options in {config}",
        f"checked: retrieval.collection: {collection}",
        "not set: server.keys_file",
        "checked: what limits, models, collection and embedder say of each other",
    ):
        assert line in fine.stderr.splitlines(), fine.stderr
    failed = check(config, f"retrieval.collection={tmp_path}/gone")
    assert f"failed: retrieval.collection: {tmp_path}/gone: No such file or directory" in failed.stderr.splitlines()
    assert "not reached: server.keys_file" in failed.stderr and "checked: retrieval.embedder: " in failed.stderr


def check(config, *sets):
    return run("--config", config, "--check-config", *(a for s in sets for a in ("--set", s)))


@pytest.mark.parametrize("sets,words", [
    ([f"model.path={DEPS / 'minilm'}", "retrieval.collection="], "a bert model does not write text"),
    (["server.max_context=1000000"], "server.max_context is 1000000, the model's limit is"),
    (["retrieval.max_k=1"], "retrieval.max_k is 1"),
    (["retrieval.max_neighbors=1"], f"the model reads {NEIGHBORS} neighbours, retrieval.max_neighbors is 1"),
    (["server.max_sequences=2", "server.max_queue=4", "server.max_prompts=8"],
     "server.max_prompts is 8, but only 6 prompts can run or wait"),
    (["retrieval.collection=", f"retrieval.reranker={ROOT / 'tests/golden/reranker/qwen3'}"],
     "retrieval.reranker is for a collection: set retrieval.collection"),
    (["retrieval.reranker_instruction=Find it"], "retrieval.reranker_instruction is for a reranker: set retrieval.reranker"),
    ([f"retrieval.reranker={ROOT / 'tests/golden/reranker/qwen3'}", "retrieval.reranker_instruction=" + "Find it. " * 40],
     "shorten retrieval.reranker_instruction"),
])
def test_check_config_refuses_what_start_would(config, sets, words):
    failed = check(config, *sets)
    assert failed.returncode == 1 and words in failed.stderr and failed.stdout == "", failed.stderr


def test_check_config_reads_the_collection(config, tmp_path):
    build = [BUILD / "retro-index", "build", "--config", config, "--out", tmp_path / "c", "--chunk-length", "32"]
    subprocess.run([*build, ROOT / "tests/texts/testing.md"], check=True, capture_output=True)
    failed = check(config, f"retrieval.collection={tmp_path / 'c'}")
    assert failed.returncode == 1 and "chunks of 32 tokens, the model reads 64" in failed.stderr, failed.stderr


def test_a_collection_of_another_kind(config, tmp_path):
    build = [BUILD / "retro-index", "build", "--config", config, "--out", tmp_path / "c", "--chunk-length", "32"]
    subprocess.run([*build, ROOT / "tests/texts/testing.md"], check=True, capture_output=True)
    failed = run("--config", config, "--set", f"retrieval.collection={tmp_path / 'c'}")
    assert failed.returncode == 1 and "chunk" in failed.stderr and "32" in failed.stderr and "64" in failed.stderr


def test_the_log_says_what_runs_and_no_prompts(server):
    server.complete("a very secret prompt", max_tokens=2)
    log = server.log.read_text()
    for words in ("memory: weights ", " GB available", "model ", "retro, ", "M parameters", "backend cpu", "collection ", "chunks, generation 1", "sessions: 8", " bytes a token"):
        assert words in log
    assert "secret" not in log


@pytest.mark.parametrize("other, says", [
    ({"path": "/no/such"}, r"model\.others\[1\], /no/such: .*No such file"),
    ({"path": "minilm", "role": "decoder"}, r"model\.others\[1\], .*minilm: "),
    ({"path": "retro-docs", "role": "embedder"}, r"model\.others\[1\], .*retro-docs: "),
])
def test_check_config_reads_every_model(config, other, says):
    folder = {"minilm": DEPS / "minilm", "retro-docs": ROOT / "models" / MODEL}
    good = {"path": str(ROOT / "models" / MODEL), "name": "second"}
    other = other | {"path": str(folder.get(other["path"], other["path"]))}
    assert check(config, f"model.others={json.dumps([good])}").returncode == 0
    failed = check(config, f"model.others={json.dumps([good, other])}")
    assert failed.returncode == 1 and re.search(says, failed.stderr), failed.stderr


@pytest.mark.parametrize("others", [[{"path": "decoder"}], [{"path": "decoder", "name": "second"}, {"path": "decoder", "name": "second"}],
                                    [{"path": "embedder", "role": "embedder"}]])
def test_check_config_compares_names(config, others):
    folder = {"embedder": str(DEPS / "minilm"), "decoder": str(ROOT / "models" / MODEL)}
    failed = check(config, f"model.others={json.dumps([other | {'path': folder[other['path']]} for other in others])}")
    assert failed.returncode == 1 and "two models are called" in failed.stderr, failed.stderr
