"""Prompts that begin alike: what is computed once, what is told of it, and that no answer differs by a bit."""
import concurrent.futures
import json
import random
import subprocess

import pytest
from chat_model import make_chat_model
from conftest import BUILD, MODEL, NEIGHBORS, ROOT, Server

PLAIN = {"temperature": 0, "retrieval": {"enabled": False}}


def ids(n, seed=0):
    generator = random.Random(seed)
    return [generator.randrange(100, 8000) for _ in range(n)]


def cached(reply):
    return reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def metric(server, name):
    lines = server.request("GET", "/metrics").body.decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name + "{"))


def answer(reply):
    return reply["choices"], reply["retrieval"]


@pytest.fixture(scope="module")
def servers(config, tmp_path_factory):
    """One that keeps rows, far fewer than are asked for, and one that keeps none."""
    folder = tmp_path_factory.mktemp("prefixes")
    options = ("server.max_sequences=4", f"retrieval.max_k={NEIGHBORS + 1}")
    pair = [Server(config, folder, f"server.prefix_cache_mb={mb}", *options) for mb in (8, 0)]
    yield pair
    for server in pair:
        assert server.stop() == 0, server.log.read_text()


def test_a_prompt_is_computed_once(start):
    server = start()
    prompt = ids(300)
    first, computed = server.complete([prompt], max_tokens=5, **PLAIN), server.health()["prompt_tokens"]
    again = server.complete([prompt], max_tokens=5, **PLAIN)
    assert (cached(first), cached(again)) == (0, 299)
    assert again["choices"] == first["choices"]
    assert server.health()["prompt_tokens"] == computed + 1
    assert metric(server, "retro_prefix_cache_queries_total") == 600
    assert metric(server, "retro_prefix_cache_hits_total") == 299
    # The engine gives a sequence's blocks back after its answer.
    server.wait_until(lambda health: metric(server, "retro_kv_blocks_used") == 0, 30)
    assert 3 <= metric(server, "retro_prefix_cache_blocks") <= metric(server, "retro_prefix_cache_blocks_max")
    assert metric(server, "retro_prefix_cache_bytes") > 0 and metric(server, "retro_prefix_cache_evictions_total") == 0


def test_the_answer_is_kept_too(start):
    server = start()
    turn = ids(70)
    written = server.complete([turn], max_tokens=140, return_token_ids=True, ignore_eos=True, **PLAIN)["choices"][0]
    turn += written["token_ids"] + ids(9, seed=2)
    # The last token was written and never read.
    assert cached(server.complete([turn], max_tokens=3, **PLAIN)) == 70 + 139


def test_neighbors_are_encoded_once(start):
    """Chunks of a prompt, then the same again, then with what a turn adds to it."""
    server = start("retrieval.grid=start")
    prompt = ids(200)

    def encoded(n, **fields):
        before, queries = (metric(server, f"retro_{name}_total") for name in ("chunks_encoded", "prefix_cache_queries"))
        reply = server.complete([prompt[:n]], max_tokens=1, temperature=0, **fields)
        server.wait_until(lambda health: metric(server, "retro_prefix_cache_queries_total") == queries + n, 30)
        server.wait_until(lambda health: metric(server, "retro_kv_blocks_used") == 0, 30)
        return metric(server, "retro_chunks_encoded_total") - before, reply["choices"]

    first, again = encoded(150), encoded(150)
    assert (first[0], again[0]) == (2, 0) and first[1] == again[1]
    assert metric(server, "retro_chunks_found_total") == 1 and metric(server, "retro_chunks_kept") > 0
    assert encoded(200)[0] == 1  # that of rows 128 to 192
    assert encoded(200, retrieval={"k": 1})[0] > 0  # other neighbours
    assert encoded(150, retrieval={"enabled": False})[0] == 0


def test_answers_to_one_prompt_share_it(start):
    server = start()
    reply = server.complete([ids(300)], max_tokens=2, n=4, temperature=1, seed=1, retrieval={"enabled": False})
    assert reply["usage"]["prompt_tokens"] == 300 and cached(reply) == 0
    # Two blocks of 128 rows are shared, the rest of the prompt is each answer's own.
    assert server.health()["prompt_tokens"] == 300 + 3 * (300 - 256)


def test_prompts_at_once_share_what_they_begin_with(start):
    server = start("server.max_sequences=8")
    system = ids(300)
    prompts = [system + ids(20, seed=i) for i in range(1, 9)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda p: server.complete([p], max_tokens=4, **PLAIN)["choices"], prompts))
    assert server.health()["prompt_tokens"] <= 320 + 7 * (320 - 256)
    alone = start("server.prefix_cache_mb=0")
    assert texts == [alone.complete([p], max_tokens=4, **PLAIN)["choices"] for p in prompts]


def test_scored_prompts_are_computed(servers):
    kept, plain = servers
    fields = {"max_tokens": 2, "echo": True, "logprobs": 2, **PLAIN}
    prompt = [ids(200, seed=5)]
    kept.complete(prompt, max_tokens=1, **PLAIN)
    scored = kept.complete(prompt, **fields)
    assert cached(scored) == 0
    assert answer(scored) == answer(plain.complete(prompt, **fields))
    ranked = kept.complete(prompt, prompt_logprobs=1, max_tokens=1, **PLAIN)
    assert cached(ranked) == 0
    assert cached(kept.complete(prompt, max_tokens=1, **PLAIN)) == 199


def test_off(servers):
    prompt = [ids(300, seed=6)]
    assert [cached(servers[1].complete(prompt, max_tokens=1, **PLAIN)) for _ in range(2)] == [0, 0]
    assert metric(servers[1], "retro_prefix_cache_blocks_max") == 0


def edited(prompts, generator):
    """An earlier prompt up to somewhere, perhaps with another token in it, and new tokens. Many lengths leave the same
    rest when they are divided by the length of a chunk: rows that read neighbours are of use in one grid only."""
    prompt = list(generator.choice(prompts)) if prompts else []
    prompt = prompt[: generator.randrange(len(prompt) + 1)]
    if prompt and generator.random() < 0.2:
        prompt[generator.randrange(len(prompt))] = 77
    prompt += ids(generator.randrange(1, 150), seed=generator.random())
    return prompt[:400] if generator.random() < 0.3 else (prompt + ids(64))[: 64 * min(6, 1 + len(prompt) // 64) + 7]


@pytest.mark.parametrize("grid", ["end", "start"])
def test_no_answer_differs(grid, config, tmp_path):
    """Random edits, four at a time, in a cache that is too small, with live retrieval and without."""
    generator = random.Random(grid)
    requests, prompts = [], []
    for _ in range(24):
        prompts.append(edited(prompts, generator))
        retrieval = generator.choice([{"enabled": False}, {}, {}, {"k": 1}, {"min_similarity": 0.3}])
        requests.append({"max_tokens": generator.randrange(1, 40), "temperature": generator.choice([0, 1]), "seed": 3,
                         "logprobs": 0, "retrieval": retrieval, "ignore_eos": True})
    pair = [Server(config, tmp_path, f"server.prefix_cache_mb={mb}", "server.max_sequences=4", "server.max_queue=64",
                   f"retrieval.grid={grid}") for mb in (16, 0)]
    replies = []
    for server in pair:
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            replies.append(list(pool.map(lambda i: server.complete([prompts[i]], **requests[i]), range(len(prompts)))))
    for kept, plain in zip(*replies):
        assert answer(kept) == answer(plain)
    assert sum(map(cached, replies[0])) > 0 and sum(map(cached, replies[1])) == 0
    assert metric(pair[0], "retro_prefix_cache_evictions_total") > 0
    assert metric(pair[0], "retro_chunks_found_total") > 0 == metric(pair[1], "retro_chunks_found_total")
    for server in pair:
        assert server.stop() == 0, server.log.read_text()


# The operator's prefixes.

SYSTEM = {"messages": [{"role": "system", "content": "Answer in few words. " * 20}]}


@pytest.fixture(scope="module")
def chat_folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("prefix-chat") / "script"
    make_chat_model(path)
    return path


@pytest.fixture
def start_named(chat_folder, tmp_path):
    """Starts servers with these prefixes and the same folder for their rows."""
    running = []
    (tmp_path / "rows").mkdir()
    (tmp_path / "system.json").write_text(json.dumps(SYSTEM))
    (tmp_path / "notice.txt").write_text("Notice: " + "all texts begin like this one, " * 20 + "\n")
    config = tmp_path / "retro.json"
    config.write_text(json.dumps({
        "model": {"path": str(chat_folder)},
        "server": {"port": 0, "max_context": 1024, "prefix_folder": "rows",
                   "prefixes": [{"path": "system.json"}, {"path": "notice.txt"}]}}))

    def start_one(*sets):
        running.append(Server(config, tmp_path, *sets))
        return running[-1]

    yield start_one
    for server in running:
        assert server.process.poll() is not None or server.stop() == 0, server.log.read_text()


def first_chat(server):
    """The first chat that a server is asked, with the text that it begins with."""
    messages = SYSTEM["messages"] + [{"role": "user", "content": "Hi"}]
    reply = server.post({"messages": messages}, "/v1/chat/completions")
    assert reply.status == 200, reply.body
    return reply.json()


def test_named_prefixes_are_there_from_the_start(start_named, tmp_path):
    server = start_named()
    log = server.log.read_text()
    assert "prefix system.json: " in log and "prefix notice.txt: " in log and log.count(" tokens computed in ") == 2
    chat = first_chat(server)
    # All but the user's word, what comes behind it, and the role's name.
    assert 0 < chat["usage"]["prompt_tokens"] - cached(chat) < 20
    notice = (tmp_path / "notice.txt").read_text()[:-1]
    text = server.complete(notice + " And so on.", max_tokens=1)
    assert 0 < text["usage"]["prompt_tokens"] - cached(text) < 15
    assert server.stop() == 0
    assert sorted(p.name for p in (tmp_path / "rows").iterdir()) == ["notice.txt.rows", "system.json.rows"]

    again = start_named()
    assert again.log.read_text().count(" tokens read from its file in ") == 2
    second = first_chat(again)
    assert second["choices"] == chat["choices"] and second["usage"] == chat["usage"]


def test_files_of_rows_that_do_not_fit_are_made_anew(start_named, tmp_path):
    server = start_named()
    assert server.stop() == 0
    rows = tmp_path / "rows/system.json.rows"
    good = rows.read_bytes()
    rows.write_bytes(good[:1000] + bytes([good[1000] ^ 1]) + good[1001:])
    (tmp_path / "notice.txt").write_text("Another notice. " * 20)
    server = start_named()
    log = server.log.read_text()
    assert "system.json.rows: its checksum does not fit; its rows are computed again" in log
    assert log.count(" tokens computed in ") == 2
    assert rows.read_bytes() == good and oct(rows.stat().st_mode & 0o777) == "0o600"
    # Rows of another type are not read.
    assert server.stop() == 0
    other = start_named("model.dtype=bf16")
    assert other.log.read_text().count(" tokens computed in ") == 2


def test_nothing_that_a_client_sends_is_stored(start_named, tmp_path):
    server = start_named()
    server.complete("A secret of a client. " * 30, max_tokens=2)
    assert server.stop() == 0
    assert sorted(p.name for p in (tmp_path / "rows").iterdir()) == ["notice.txt.rows", "system.json.rows"]
    written = b"".join(p.read_bytes() for p in (tmp_path / "rows").iterdir())
    assert len(written) < 4 << 20 and start_named().log.read_text().count(" tokens read from its file in ") == 2


@pytest.mark.parametrize("sets, words, checked", [
    (['server.prefixes=[{"path": "gone.txt"}]'], "server.prefixes, ", True),
    (["server.prefix_cache_mb=1"], "raise server.prefix_cache_mb", False),
    (["server.max_context=64"], "server.max_context is 64", True),
    ([f"model.path={ROOT / 'models' / MODEL}"], "the rows of a retro model depend on more", True),
])
def test_prefixes_that_cannot_be_kept_are_refused(start_named, tmp_path, sets, words, checked):
    command = [BUILD / "retro-server", "--config", tmp_path / "retro.json", *(a for s in sets for a in ("--set", s))]
    for check in [[], ["--check-config"]][:1 + checked]:
        done = subprocess.run(command + check, capture_output=True, text=True, timeout=120)
        assert done.returncode == 1 and words in done.stderr, done.stderr
