"""server.cache_folder: rows of prompts that outlive the process, and rows of documents that must not."""
import concurrent.futures
import contextlib
import json
import os
import random
import resource
import signal
import struct
import subprocess
import time

import pytest
from conftest import BUILD, TOOLS, Server
from test_keys import Keys, bearer
from test_prefixes import PLAIN, answer, cached, ids, metric

SECONDS = 60  # that anything may take on a busy machine


@pytest.fixture
def rows(tmp_path):
    return tmp_path / "rows"


@pytest.fixture
def keep(start, rows):
    """Starts servers that keep rows in one folder."""
    return lambda *sets: start(f"server.cache_folder={rows}", *sets)


def files(rows):
    return sorted(rows.glob("*.rows"))


def wait_for(condition):
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "it does not come about"
        time.sleep(0.02)


def settled(server):
    """Waits until nothing is written any more: each block that waited is in a file, or was dropped."""
    seen = [-1]

    def same():
        seen.append(metric(server, "retro_cache_folder_written_total"))
        time.sleep(0.2)
        return len(seen) > 3 and seen[-1] == seen[-2] == seen[-3]

    wait_for(same)


def stop(server):
    assert server.stop() == 0, server.log.read_text()


def requests(seed):
    """Prompts that begin alike in groups, some of which read neighbours."""
    generator = random.Random(seed)
    made = []
    for group in range(4):
        system = ids(300 + 64 * group, seed=group)
        for turn in range(3):
            retrieval = {"enabled": False} if group % 2 else {}
            made.append(dict(prompt=[system + ids(64 * generator.randrange(1, 6), seed=(group, turn).__hash__())],
                             max_tokens=70, temperature=0, ignore_eos=True, logprobs=0, retrieval=retrieval))
    return made


def ask(server, asked):
    return [server.complete(**fields) for fields in asked]


def test_a_restart_keeps_the_hits(keep, start):
    asked = requests(1)
    first = keep()
    began = ask(first, asked)
    without = ask(first, asked)
    stop(first)
    second = keep()
    restarted = ask(second, asked)
    assert [answer(reply) for reply in restarted] == [answer(reply) for reply in began]
    hits = sum(map(cached, restarted))
    assert hits >= 0.9 * sum(map(cached, without)) > 3000
    assert hits == metric(second, "retro_prefix_cache_hits_total")
    from_files = metric(second, "retro_cache_folder_hits_total")
    assert 0.3 * hits < from_files < hits, "later prompts of a group find in memory what the first one has read"
    # Rows from files and rows in memory are the bits that computing gives.
    assert [answer(reply) for reply in ask(start("server.prefix_cache_mb=0"), asked)] == [answer(reply) for reply in began]


def test_files_of_another_type_of_keys(keep):
    """Rows of int8 come back from files as they were, and are no rows for a server that keeps others."""
    prompt, narrow = [ids(400)], "model.cache_dtype=int8"
    first = keep(narrow)
    began = first.complete(prompt, max_tokens=40, **PLAIN)
    settled(first)
    stop(first)
    again = keep(narrow)
    restarted = again.complete(prompt, max_tokens=40, **PLAIN)
    assert answer(restarted) == answer(began) and cached(restarted) == 399
    stop(again)
    other = keep()
    assert cached(other.complete(prompt, max_tokens=40, **PLAIN)) == 0


def test_folder_and_files_are_the_owners(keep, rows):
    server = keep()
    server.complete([ids(300)], max_tokens=2, **PLAIN)
    wait_for(lambda: len(files(rows)) == 3)  # two full blocks and the end
    assert metric(server, "retro_cache_folder_blocks") == 3
    assert metric(server, "retro_cache_folder_bytes") == sum(p.stat().st_size for p in files(rows))
    assert oct(rows.stat().st_mode & 0o777) == "0o700"
    assert {oct(p.stat().st_mode & 0o777) for p in files(rows)} == {"0o600"}
    # The same prompt, and one that goes on, add no more than the new rows.
    server.complete([ids(300)], max_tokens=2, **PLAIN)
    server.complete([ids(300) + ids(84, seed=1)], max_tokens=2, **PLAIN)
    # The block that the longer one fills, and its end; the first prompt's end has its answer behind it, and stays.
    wait_for(lambda: metric(server, "retro_cache_folder_blocks") == 5 and len(files(rows)) == 5)


def test_many_prompts_that_begin_otherwise(keep):
    """A full block is found by its address, however many others begin a prompt."""
    server = keep()
    for i in range(90):
        server.complete([ids(140, seed=i)], max_tokens=1, **PLAIN)
    settled(server)
    stop(server)
    server = keep()
    assert {cached(server.complete([ids(140, seed=i)], max_tokens=1, **PLAIN)) for i in (0, 40, 89)} == {139}


def test_a_key_gets_no_rows_of_another(keep, tmp_path):
    keys = Keys(tmp_path / "keys.jsonl")
    for name in ("alice", "bob"):
        keys.add(name)
    options = f"server.keys_file={keys.path}", "retrieval.collection="

    def ask_as(server, who):
        reply = server.request("POST", "/v1/completions", json.dumps({"prompt": [ids(400)], "max_tokens": 1}), bearer(keys.secrets[who]))
        assert reply.status == 200, reply.body
        return cached(reply.json())

    server = keep(*options)
    assert ask_as(server, "alice") == 0
    stop(server)
    server = keep(*options)
    assert ask_as(server, "bob") == 0 and ask_as(server, "alice") == 399
    stop(server)
    # What the operator says to be shared is found by those who share it alone.
    shared = keep(*options, "server.prefix_sharing=filter")
    assert ask_as(shared, "alice") == 0 and ask_as(shared, "bob") == 399
    stop(shared)
    shared = keep(*options, "server.prefix_sharing=filter")
    assert ask_as(shared, "bob") == 399
    stop(shared)
    assert ask_as(keep(*options), "bob") == 399


def holds(rows, prompt):
    """Whether the rows of all its blocks are in files. One that is read here may leave for a newer one."""
    wanted = {struct.pack("<16i", *prompt[first : first + 16]) for first in range(0, len(prompt), 128)}
    for path in files(rows):
        with contextlib.suppress(FileNotFoundError):
            head = path.read_bytes()[:2048]
            wanted -= {ids_ for ids_ in wanted if ids_ in head}
    return not wanted


def test_the_budget_is_kept(keep, rows):
    server = keep("server.cache_folder_mb=6", "server.prefix_cache_mb=64")
    hot = ids(280, seed="hot")
    for i in range(12):
        for prompt in (ids(280, seed=i), hot):
            server.complete([prompt], max_tokens=1, **PLAIN)
            wait_for(lambda prompt=prompt: holds(rows, prompt))
        assert sum(p.stat().st_size for p in files(rows)) <= 6_000_000
    assert metric(server, "retro_cache_folder_evictions_total") > 0
    stop(server)
    assert 2_000_000 < sum(p.stat().st_size for p in files(rows)) <= 6_000_000
    # The prompt that was used again and again is there, the oldest one is not.
    server = keep("server.cache_folder_mb=6")
    assert cached(server.complete([hot], max_tokens=1, **PLAIN)) == 279
    assert cached(server.complete([ids(280, seed=0)], max_tokens=1, **PLAIN)) == 0
    stop(server)
    server = keep("server.cache_folder_mb=1")
    assert sum(p.stat().st_size for p in files(rows)) <= 1_000_000


def test_a_prompt_that_is_larger_than_the_budget_keeps_its_beginning(keep, rows):
    """Blocks that made room for those behind them would leave files that nobody finds."""
    server = keep("server.cache_folder_mb=4")
    long = ids(600, seed="long")
    server.complete([long], max_tokens=1, **PLAIN)
    settled(server)
    assert metric(server, "retro_cache_folder_dropped_total") > 0
    stop(server)
    assert len(files(rows)) == 2
    assert cached(keep("server.cache_folder_mb=4").complete([long], max_tokens=1, **PLAIN)) == 256


def test_files_that_do_not_fit(keep, rows):
    server = keep()
    first = server.complete([ids(600)], max_tokens=2, **PLAIN)
    wait_for(lambda: len(files(rows)) == 5)
    stop(server)
    cut, flipped, swapped, *rest = files(rows)
    cut.write_bytes(cut.read_bytes()[:-100])
    data = bytearray(flipped.read_bytes())
    data[len(data) // 2] ^= 1
    flipped.write_bytes(data)
    swapped.write_bytes(rest[0].read_bytes())
    (rows / ("0" * 64 + ".rows")).write_bytes(b"no rows")
    (rows / "writing.tmp").write_bytes(b"half of a file")
    (rows / "letter.txt").write_text("not a block")
    server = keep()
    again = server.complete([ids(600)], max_tokens=2, **PLAIN)
    assert again["choices"] == first["choices"] and cached(again) < 599
    log = server.log.read_text()
    assert log.count("the file is removed and its rows are computed again") in (3, 4)  # one may lie behind another
    settled(server)
    assert not (rows / "writing.tmp").exists() and (rows / "letter.txt").exists()
    stop(server)
    # A damaged file behind another one is met when that is whole again.
    for _ in range(3):
        server = keep()
        found = cached(server.complete([ids(600)], max_tokens=2, **PLAIN))
        settled(server)
        stop(server)
    assert found == 599
    # Rows of another type are not read, and are not kept.
    other = keep("model.dtype=f32")
    assert "files of another model or program were removed" in other.log.read_text()
    assert files(rows) == [] and cached(other.complete([ids(600)], max_tokens=2, **PLAIN)) == 0


def test_killed_while_it_writes(config, tmp_path, rows, keep):
    asked = [dict(prompt=[ids(700, seed=i)], max_tokens=3, **PLAIN) for i in range(10)]
    began = {}
    for round in range(4):
        server = Server(config, tmp_path, f"server.cache_folder={rows}", "server.max_queue=64")
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            waiting = [pool.submit(server.post, {**fields, "seed": 1}) for fields in asked[: 3 + 2 * round]]
            wait_for(lambda: metric(server, "retro_cache_folder_written_total") > round)
            server.process.send_signal(signal.SIGKILL)
            server.process.wait(30)
            for i, reply in enumerate(waiting):
                if reply.exception(timeout=SECONDS) is None:
                    began[i] = reply.result().json()["choices"]
    server = keep()
    for i, fields in enumerate(asked):
        choices = server.complete(**fields)["choices"]
        assert choices == began.get(i, choices)
    assert metric(server, "retro_cache_folder_hits_total") > 0 and metric(server, "retro_cache_folder_failures_total") == 0


def test_a_full_disk(config, tmp_path, rows):
    """Files larger than a limit cannot be written, as on a disk that is full."""
    rows.mkdir(mode=0o700)
    limit = 256 * 1024
    log = tmp_path / "limited.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [BUILD / "retro-server", "--config", config, "--set", f"server.cache_folder={rows}", "--set", "retrieval.collection="],
            stdout=out, stderr=out, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    server = Server.__new__(Server)
    server.log, server.process = log, process
    server.port = server.wait_for_port()
    try:
        for i in range(4):
            server.complete([ids(400, seed=i)], max_tokens=2, **PLAIN)
        wait_for(lambda: metric(server, "retro_cache_folder_dropped_total") > 0)
        server.complete([ids(400, seed=9)], max_tokens=2, **PLAIN)
        assert log.read_text().count("no more rows are written until the next start") == 1
        assert not (rows / "writing.tmp").exists()
    finally:
        assert server.stop() == 0, log.read_text()


def test_folders_that_are_refused(config, tmp_path, keep, rows):
    def refusal(*sets, check=()):
        command = [BUILD / "retro-server", "--config", config, *check, *(a for s in sets for a in ("--set", s))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 1, done.stderr
        return done.stderr

    open_to_all = tmp_path / "open"
    open_to_all.mkdir(mode=0o755)
    for check in ([], ["--check-config"]):
        assert "chmod 700" in refusal(f"server.cache_folder={open_to_all}", check=check)
        assert "Not a directory" in refusal(f"server.cache_folder={config}", check=check)
    assert "no rows are kept in memory" in refusal(f"server.cache_folder={rows}", "server.prefix_cache_mb=0")
    keep()
    assert "another server has this folder" in refusal(f"server.cache_folder={rows}")


# Documents.

SECRET = "The vault of the third cellar opens with the number 48151623 and a brass key. "
OTHER = "Bread is baked at two hundred and twenty degrees for half an hour in this bakery. "


def memory_has(server, needles):
    """Which of these bytes lie in memory that the process can write to."""
    found = set()
    with open(f"/proc/{server.process.pid}/maps") as maps, open(f"/proc/{server.process.pid}/mem", "rb", 0) as memory:
        for line in maps:
            span, mode = line.split()[:2]
            if "w" not in mode or "[v" in line:
                continue
            first, last = (int(part, 16) for part in span.split("-"))
            if last - first > 1 << 36:
                continue  # a sanitizer's own
            try:
                data = os.pread(memory.fileno(), last - first, first)
            except OSError:
                continue
            found |= {name for name, bytes_ in needles.items() if bytes_ in data}
    return found


def parse(path):
    """ids, documents and image of a file of rows."""
    data = path.read_bytes()
    n, n_read, documents, image = struct.unpack_from("<IIQQ", data, 88)
    head = 112 + 4 * (n + n_read)
    return data[112 : 112 + 4 * n], data[head : head + documents], data[-8 - image : -8]


def named(path):
    """The documents that a file's rows read, each with the row of the text that read it first."""
    documents, at, found = parse(path)[1], 0, {}
    while at < len(documents):
        size, row = struct.unpack_from("<II", documents, at)
        at += 40 + size
        found[documents[at - size : at].decode()] = row
    return found


def needles_of(paths):
    """Bytes of the last row by the names of their files: first rows may be those of other prompts, too."""
    return {p.name: parse(p)[2][-512:] for p in paths}


@pytest.fixture
def library(keep, folder):
    """Starts servers with a collection of their own, which the test may change."""
    return lambda: keep(f"retrieval.collection={folder}")


def put(server, name, text):
    reply = server.request("PUT", f"/v1/documents/{name}", json.dumps({"text": text * 6}), {"Content-Type": "application/json"})
    assert reply.status in (200, 201), reply.body


MODES = {"prompt": {"mode": "prompt", "k": 1}, "attend": {"k": 1}}


def read(server, question, mode):
    return server.complete(question * 3, max_tokens=150, temperature=0, ignore_eos=True, retrieval=MODES[mode])


def delete(server, folder):
    assert server.request("DELETE", "/v1/documents/secret").status == 200


def delete_elsewhere(server, folder):
    done = subprocess.run([TOOLS / "retro-index", "delete", folder, "secret"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout


def replace(server, folder):
    put(server, "secret", "The garden behind the house has roses, an old pear tree and two benches. ")


def delete_while_it_is_off(server, folder):
    stop(server)
    delete_elsewhere(server, folder)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("change", [delete, delete_elsewhere, replace, delete_while_it_is_off])
def test_deleted_text_leaves(library, folder, rows, mode, change):
    server = library()
    put(server, "secret", SECRET)
    put(server, "bread", OTHER)
    for text in (SECRET, OTHER):
        before = set(files(rows))
        reply = read(server, text, mode)
        settled(server)
        new = set(files(rows)) - before
        found = {n["document"] for entry in reply["retrieval"] for n in entry["neighbors"]}
        # Rows name what their own prompt and answer have read, whatever else begins like them.
        assert new and {name for path in new for name in named(path)} == found
    marked = [p for p in files(rows) if "secret" in named(p)]
    others = [p for p in files(rows) if p not in marked]
    assert marked and others
    needles = needles_of(marked)
    assert memory_has(server, needles), "the search finds rows that are there"

    change(server, folder)
    if server.process.poll() is not None:
        server = library()
    wait_for(lambda: not any(p.exists() for p in marked))
    assert metric(server, "retro_cache_folder_forgotten_total") >= 1
    assert memory_has(server, needles) == set()
    assert all(p.exists() for p in others)
    again = read(server, OTHER, mode)
    assert cached(again) == again["usage"]["prompt_tokens"] - 1
    if change != replace:
        # The words that were asked are the client's own, who may ask them again; nothing of the document is behind them.
        read(server, SECRET, mode)
        settled(server)
        assert not any("secret" in named(p) for p in files(rows))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("change", [delete, delete_elsewhere, None])
def test_what_went_is_not_found_by_the_next_request(library, folder, mode, change):
    """A request sees what the collection was when it came, whatever other threads have got to since. A document that comes
    back as it was gives the same prompt, and only its rows tell that it was gone."""
    server = library()

    def put_secret(title):
        reply = server.request("PUT", "/v1/documents/secret", json.dumps({"text": SECRET * 6, "title": title}), {"Content-Type": "application/json"})
        assert reply.status in (200, 201), reply.body

    put_secret("A")
    first = read(server, SECRET, mode)
    seen = []
    for _ in range(8):
        again = read(server, SECRET, mode)
        assert cached(again) == again["usage"]["prompt_tokens"] - 1
        if change:
            change(server, folder)
        else:
            put_secret("B")
        put_secret("A")
        reply = read(server, SECRET, mode)
        assert reply["choices"] == first["choices"]
        seen.append(cached(reply))
    assert len(set(seen)) == 1 and seen[0] < first["usage"]["prompt_tokens"] - 1
