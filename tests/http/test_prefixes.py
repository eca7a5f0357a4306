"""Prompts that begin alike: what is computed once, what is told of it, and that no answer differs by a bit."""
import concurrent.futures
import random

import pytest

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
    from conftest import Server

    folder = tmp_path_factory.mktemp("prefixes")
    options = ("server.max_sequences=4", "retrieval.max_k=3")
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
    blocks = metric(server, "retro_prefix_cache_blocks")
    assert 3 <= blocks <= metric(server, "retro_prefix_cache_blocks_max")
    assert metric(server, "retro_prefix_cache_bytes") > 0 and metric(server, "retro_prefix_cache_evictions_total") == 0
    assert metric(server, "retro_kv_blocks_used") == 0


def test_the_answer_is_kept_too(start):
    server = start()
    turn = ids(70)
    written = server.complete([turn], max_tokens=140, return_token_ids=True, ignore_eos=True, **PLAIN)["choices"][0]
    turn += written["token_ids"] + ids(9, seed=2)
    # The last token was written and never read.
    assert cached(server.complete([turn], max_tokens=3, **PLAIN)) == 70 + 139


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
    from conftest import Server

    generator = random.Random(grid)
    requests, prompts = [], []
    for _ in range(24):
        prompts.append(edited(prompts, generator))
        retrieval = generator.choice([{"enabled": False}, {}, {}, {"k": 1}, {"min_similarity": 0.3}])
        requests.append({"max_tokens": generator.randrange(1, 40), "temperature": generator.choice([0, 1]), "seed": 3,
                         "logprobs": 0, "retrieval": retrieval, "ignore_eos": True})
    pair = [Server(config, tmp_path, f"server.prefix_cache_mb={mb}", "server.max_sequences=4", "server.max_queue=64",
                   f"retrieval.grid={grid}") for mb in (8, 0)]
    replies = []
    for server in pair:
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            replies.append(list(pool.map(lambda i: server.complete([prompts[i]], **requests[i]), range(len(prompts)))))
    for kept, plain in zip(*replies):
        assert answer(kept) == answer(plain)
    assert sum(map(cached, replies[0])) > 100 and sum(map(cached, replies[1])) == 0
    assert metric(pair[0], "retro_prefix_cache_evictions_total") > 0
    for server in pair:
        assert server.stop() == 0, server.log.read_text()
