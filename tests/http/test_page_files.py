"""GET / and the files that it loads, as HTTP: what they say about themselves, and that they can be switched off."""
import pathlib
import re

import pytest

from conftest import NEIGHBORS, ROOT

PAGE = ROOT / "server/page"
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
         ".svg": "image/svg+xml", ".md": "text/markdown; charset=utf-8"}
FILES = {("/" if p.suffix == ".html" else f"/page/{p.name}"): p for p in PAGE.iterdir() if p.suffix in TYPES}
# What the page loads beside its own files: libraries of Debian's packages, and pages of documentation.
LIBRARIES = {f"/page/{name}.js": pathlib.Path("/usr/share/javascript", name, file)
             for name, file in (("marked", "marked.umd.min.js"), ("katex", "katex.min.js"))}
PAGES = {f"/page/{name}": ROOT / "docs" / name for name in ("agents.md", "mcp.md")}
ALL = {**FILES, **LIBRARIES, **PAGES}


@pytest.mark.parametrize("path", ALL)
def test_each_file_is_served_as_it_lies_there(server, path):
    reply = server.request("GET", path)
    assert reply.status == 200 and reply.body == ALL[path].read_bytes()
    assert reply.headers["Content-Type"] == TYPES[ALL[path].suffix]
    assert reply.headers["X-Content-Type-Options"] == "nosniff" and reply.headers["Referrer-Policy"] == "no-referrer"
    policy = dict(rule.split(" ", 1) for rule in reply.headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["form-action"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'"
    head = server.request("HEAD", path)
    assert head.status == 200 and head.body == b"" and head.headers["Content-Length"] == str(len(reply.body))


def test_what_a_browser_has_is_not_sent_again(server):
    first = server.request("GET", "/page/page.js")
    tag = first.headers["ETag"]
    assert re.fullmatch('"[0-9a-f]{16}"', tag) and first.headers.get_all("Cache-Control") == ["no-cache"]
    for known in (tag, f'"other", W/{tag}'):
        again = server.request("GET", "/page/page.js", headers={"If-None-Match": known})
        assert again.status == 304 and again.body == b"" and again.headers["ETag"] == tag
    assert server.request("GET", "/", headers={"If-None-Match": tag}).status == 200


def test_the_page_names_only_files_that_are_served(server):
    named = set(re.findall(r'(?:href|src)="([^"#]+)"', FILES["/"].read_text()))
    for path in FILES:
        named |= {f"page/{name}" for name in re.findall(r'(?:from|import) ?\(?"\./([^"]+)"', FILES[path].read_text())}
    assert {f"/{name}" for name in named} - {"/openapi.json"} == (set(FILES) | set(LIBRARIES)) - {"/"}


def test_together_they_are_small():
    assert sum(len(p.read_bytes()) for p in FILES.values()) < 160000


def test_the_page_can_be_switched_off(start):
    server = start("server.page=false")
    for path in set(ALL) - {"/"}:
        reply = server.request("GET", path)
        assert reply.status == 404 and reply.error()["code"] == "not_found"
        assert server.request("OPTIONS", path).status == 404
    assert set(ALL) & set(server.request("GET", "/openapi.json").json()["paths"]) == {"/"}
    assert server.request("GET", "/").body == b"retro-server is running\n", "programs look whether the server is there"


def test_the_description_has_it_as_html(server):
    operation = server.request("GET", "/openapi.json").json()["paths"]["/"]["get"]
    assert list(operation["responses"]["200"]["content"]) == ["text/html"] and "304" in operation["responses"]


def test_the_page_learns_what_the_model_can_do(server):
    (model, _) = server.request("GET", "/v1/models").json()["data"]
    assert model["meta"]["chat"] is True and model["meta"]["chat_template"] == "plain" and model["meta"]["pictures"] is False
    props = server.request("GET", "/props").json()
    assert props["retrieval"] == {
        "enabled": True, "mode": "attention", "query": "message", "conversation": "latest", "read": "chunk", "order": "relevance", "every": 0,
        "quotes": False, "quote_words": 3,
        "support": False, "k": NEIGHBORS, "max_k": 16,
        "min_similarity": -1, "hybrid": True, "rerank": False, "pictures": True, "per_document": 0, "distinct": 0, "min_confidence": 0}
    assert props["default_generation_settings"]["params"]["temperature"] == 1
