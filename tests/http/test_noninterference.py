"""No tenant can tell that another exists: every answer equals that of a server on which the other never was.

Two servers begin with the same collection. Server A has the tenants alice and bob, server B alice alone. Alice's steps go to
both and her answers are compared whole: status, headers and body. Bob's steps go to A alone, some of them while alice waits
for her answer; they use her ids, her texts and her prompts. Both servers are restarted and compacted at the same steps, and
compact by themselves at other ones. What differs between two runs of one server is left out of the comparison (same_for_all):

  Date, x-request-id  of the moment, and random
  id                  of completions and chats: random
  created             of completions, chats and models: when it was written, and when the server began

RETRO_NONINTERFERENCE=STEPS:SEEDS runs more (`make noninterference`)."""
import concurrent.futures
import io
import json
import os
import random
import shutil
import urllib.parse
import zipfile

import pytest

from conftest import MODEL, ROOT, Server
from test_keys import Keys, bearer

STEPS, SEEDS = (int(n) for n in os.environ.get("RETRO_NONINTERFERENCE", "60:1").split(":"))
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
FILTERS = {
    "eq": [{"eq": {"tenant": name}} for name in ("alice", "bob")],
    "prefix": [{"and": [{"prefix": {"id": f"{name}/"}}, {"in": {"tenant": [name, f"{name}'s"]}}]} for name in ("alice", "bob")],
}
WORDS = "dough oven bread yeast flour stone mortar plaster saffron secret fork process signal page memory socket".split()
# Beginnings that fill blocks of the prefix cache, so that a guess would show.
SECRETS = [f"The name of patient {i} is {name} and her illness is not known to anybody. " * 12 for i, name in enumerate(("Mary", "Ann", "Eve"))]
IDS = ["report", "a/b", "Ä?", "@0123456789abcdef/report", "alice/1", "bob/1", "alice/report", "bob/report", "x" * 490]


def pick_text(r):
    return " ".join(r.choices(WORDS, k=r.choice((3, 8, 60, 200)))) + r.choice(("", ".", "\n\n# " + r.choice(WORDS) + "\nmore"))


def pick_metadata(r):
    return r.choice((None, None, {}, {"year": r.randrange(2000, 2004)}, {"tags": r.sample(WORDS, 2)}, {"tenant": "alice"}, {"tenant": "bob"},
                     {"tenant": ["alice", "bob"]}, {"tenant": ["alice"]}, {"tenant": []}, {"Tenant": "bob"}, {"tenant": "bob's"}, {"tenant": 1},
                     {"year": [2001, "bob"], "id": "bob/1", "path": "bob/1"}))


def pick_document(r, seen):
    document = {"text": pick_text(r)}
    for key, value in (("metadata", pick_metadata(r)), ("path", r.choice((None, "notes/a.md", "notes/b.md", "alice/n.md"))),
                       ("title", r.choice((None, None, "Title")))):
        if value is not None:
            document[key] = value
    return document


def pick_id(r, seen):
    return r.choice(seen) if seen and r.random() < 0.4 else r.choice(IDS)


def pick_filter(r):
    return r.choice(({"eq": {"tenant": "alice"}}, {"eq": {"tenant": "bob"}}, {"not": {"eq": {"tenant": "alice"}}}, {"range": {"year": {"gte": 2001}}},
                     {"or": [{"in": {"id": IDS[:4]}}, {"prefix": {"path": "notes/"}}]}, {"prefix": {"id": "@"}}, {"prefix": {"id": "bob/"}}, {"wrong": 1}))


def as_json(method, path, body):
    return method, path, json.dumps(body), {"Content-Type": "application/json"}


def path_of(kind, name):
    return f"/v1/{kind}/" + urllib.parse.quote(name, safe="")


def step_put(r, seen):
    return as_json("PUT", path_of("documents", pick_id(r, seen)), pick_document(r, seen))


def step_post(r, seen):
    if r.random() < 0.5:
        return as_json("POST", "/v1/documents", pick_document(r, seen))
    return as_json("POST", "/v1/documents", {"documents": [pick_document(r, seen) | ({"id": pick_id(r, seen)} if r.random() < 0.7 else {})
                                                           for _ in range(r.randrange(1, 4))]})


def step_upload(r, seen):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as z:
        for name in r.sample(("a.md", "b.txt", "sub/c.md", "a.md.meta.json", "broken.pdf"), 3):
            z.writestr(zipfile.ZipInfo(name), pick_text(r))
    rows = "".join(json.dumps({"text": pick_text(r), "tenant": "bob"}) + "\n" for _ in range(2))
    name, file = r.choice((("all.zip", archive.getvalue()), ("rows.jsonl", rows.encode()), ("page.md", b"---\ntenant: bob\n---\n" + pick_text(r).encode())))
    parts = [("file", name, file)] + [("metadata", None, json.dumps(m).encode()) for m in [pick_metadata(r)] if m is not None]
    parts += [("id", None, pick_id(r, seen).encode())] if r.random() < 0.5 else []
    body = b"".join(b'--b0undary\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n' %
                    (key.encode(), b'; filename="%s"' % file_name.encode() if file_name else b"", content) for key, file_name, content in parts)
    return "POST", "/v1/documents", body + b"--b0undary--\r\n", {"Content-Type": "multipart/form-data; boundary=b0undary"}


def step_delete(r, seen):
    return "DELETE", path_of("documents", pick_id(r, seen)), None, {}


def step_show(r, seen):
    return "GET", path_of(r.choice(("documents", "documents", "pictures")), pick_id(r, seen)), None, {}


def step_list(r, seen):
    arguments = {"limit": r.choice((1, 2, 1000)), "after": pick_id(r, seen), "prefix": "notes/", "filter": json.dumps(pick_filter(r))}
    kept = {key: value for key, value in arguments.items() if r.random() < 0.4}
    return "GET", "/v1/documents?" + urllib.parse.urlencode(kept), None, {}


def pick_choice(r):
    fields = {"hybrid": r.random() < 0.5, "per_document": r.choice((0, 1)), "distinct": r.choice((0, 0.9)), "filter": pick_filter(r), "k": r.choice((1, 3, 16))}
    return {key: value for key, value in fields.items() if r.random() < 0.6}


def step_search(r, seen):
    return as_json("POST", "/v1/retrieval/search", {"query": " ".join(r.choices(WORDS, k=3)), "k": 16, **pick_choice(r)})


def step_completion(r, seen):
    prompt = r.choice((r.choice(SECRETS), r.choice(SECRETS)[:400], pick_text(r)))
    retrieval = r.choice(({"enabled": False}, {"mode": "prompt", **pick_choice(r)}, {"mode": "attention", "k": 2, "support": True}, {"exclude": [pick_id(r, seen)]}))
    return as_json("POST", "/v1/completions", {"prompt": prompt, "max_tokens": r.choice((1, 4)), "temperature": 0, "retrieval": retrieval})


def step_chat(r, seen):
    messages = [{"role": "system", "content": r.choice(SECRETS)[:500]}, {"role": "user", "content": " ".join(r.choices(WORDS, k=4))}]
    return as_json("POST", "/v1/chat/completions", {"messages": messages, "max_tokens": 2, "temperature": 0, "retrieval": {"mode": "prompt", "k": 2, "support": True}})


def step_quote(r, seen):
    """A quotation mark is likely, and then whatever a passage allows."""
    retrieval = {"mode": r.choice(("prompt", "attention")), "k": 3, "quotes": True, "quote_words": r.choice((1, 3))}
    return as_json("POST", "/v1/completions", {"prompt": pick_text(r), "max_tokens": 8, "temperature": 0, "logit_bias": {"2": 30}, "retrieval": retrieval})


def step_embed(r, seen):
    if r.random() < 0.5:
        return as_json("POST", "/v1/embeddings", {"input": [pick_text(r)[:80]]})
    return as_json("POST", "/v1/rerank", {"query": r.choice(WORDS), "documents": r.sample(WORDS, 3)})


def step_look(r, seen):
    return "GET", r.choice(("/v1/models", "/v1/models/model", "/props", "/tokenizer_info", "/nothing")), None, {}


def step_mistake(r, seen):
    return r.choice((("POST", "/v1/documents", "{", {}), ("POST", "/v1/completions", '{"prompt": 1e999}', {}), ("PATCH", "/v1/documents", None, {}),
                     as_json("PUT", path_of("documents", "a"), {"id": pick_id(r, seen), "text": "x"}), as_json("POST", "/v1/documents", {"text": ""}),
                     as_json("POST", "/v1/completions", {"prompt": "x", "model": "bob's"}), as_json("POST", "/v1/documents", {"text": " \n"})))


KINDS = {step_put: 5, step_post: 3, step_upload: 2, step_delete: 3, step_show: 3, step_list: 3, step_search: 4, step_completion: 3, step_chat: 1, step_quote: 2,
         step_embed: 1, step_look: 1, step_mistake: 1}


def pick_step(r, seen):
    return r.choices(list(KINDS), KINDS.values())[0](r, seen)


def same_for_all(reply):
    """An answer without what differs between two runs of one server."""
    headers = sorted((key, value) for key, value in reply.headers.items() if key not in ("Date", "x-request-id"))
    try:
        body = json.loads(reply.body)
    except ValueError:
        return reply.status, headers, reply.body
    for part in [body, *body.get("data", [])] if isinstance(body, dict) else []:
        if isinstance(part, dict) and "created" in part:
            part["created"] = 0
            if "choices" in part:
                part["id"] = ""
    return reply.status, headers, body


def ids_in(answer):
    """Ids that an answer shows, for later steps to say."""
    status, _, body = answer
    if status != 200 or not isinstance(body, dict):
        return []
    return [d["id"] for d in [body, *body.get("data", [])] if isinstance(d, dict) and d.get("object") == "document"]


class World:
    """A server with these keys, which can be started again."""

    def __init__(self, config, folder, keys, secrets):
        self.config, self.folder, self.secrets = config, folder, secrets
        shutil.copytree(json.loads(config.read_text())["retrieval"]["collection"], folder / "collection")
        keys_file = folder / "keys.jsonl"
        keys_file.write_text("\n".join(keys) + "\n")
        (folder / "model").mkdir()
        for file in (ROOT / "models" / MODEL).iterdir():
            (folder / "model" / file.name).symlink_to(file)
        (folder / "model" / "chat_template.jinja").write_text(TEMPLATE)
        self.sets = (f"model.path={folder}/model", f"retrieval.collection={folder}/collection", f"server.keys_file={keys_file}",
                     "server.prefix_cache_mb=256", "retrieval.compact_after=60", "model.threads=1")
        self.server = None
        self.start()

    def start(self):
        if self.server:
            assert self.server.stop() == 0, self.server.log.read_text()
        self.server = Server(self.config, self.folder, *self.sets)

    def ask(self, who, step):
        method, path, body, headers = step
        return same_for_all(self.server.request(method, path, body, headers | bearer(self.secrets[who])))


def run(seed, both, alone, steps):
    """Returns how many of alice's answers were compared."""
    r, hers, his = random.Random(seed), [], []
    n = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for number in range(steps):
            if r.random() < 0.01:
                both.start()
                alone.start()
            beside = [pick_step(r, hers + his) for _ in range(r.choice((0, 0, 1, 2)))]
            running = [pool.submit(both.ask, "bob", step) for step in beside]
            if r.random() < 0.5:
                his += [name for task in running for name in ids_in(task.result())]
            step = pick_step(r, hers + his)
            answer, expected = both.ask("alice", step), alone.ask("alice", step)
            assert answer == expected, f"seed {seed}, step {number}: {step}"
            hers += ids_in(answer)
            his += [name for task in running for name in ids_in(task.result())]
            hers, his, n = hers[-12:], his[-12:], n + 1
    return n


@pytest.mark.parametrize("kind", FILTERS)
def test_a_tenant_does_not_see_another(config, tmp_path, kind):
    keys = Keys(tmp_path / "keys.jsonl")
    for name, filter in zip(("alice", "bob"), FILTERS[kind]):
        keys.add(name, filter=filter)
    lines, secrets = keys.lines[-2:], keys.secrets
    for seed in range(SEEDS):
        folders = [tmp_path / f"{seed}{name}" for name in "AB"]
        for folder in folders:
            folder.mkdir()
        both, alone = World(config, folders[0], lines, secrets), World(config, folders[1], lines[:1], secrets)
        try:
            n = run(f"{kind}{seed}", both, alone, STEPS)
            print(f"{kind}: seed {seed}: {n} answers compared")
        finally:
            for world in (both, alone):
                assert world.server.stop() == 0, world.server.log.read_text()
