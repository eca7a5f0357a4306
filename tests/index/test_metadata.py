"""Metadata of files: front matter, FILE.meta.json, --meta; and searches that filter by it."""
import json

import pytest

from test_changes import MODEL, run

FRONT = """---
team: bakers
year: 2024
public: true
date: 2024-05-31
title: "Bread: the book"
tags: [dough, 'hot oven', 7]
authors:
  - Ada
  - "7"
# a comment: nothing
nested:
    deep: no
places: ["Rome, Italy", Oslo]  # where it was seen
motto: 'it''s bread'
subtitle: Bread: again
summary: >
    Two
    lines
see: *authors
---
# Bread

Knead the dough for ten minutes.
"""


@pytest.fixture()
def docs(tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "bread.md").write_text(FRONT)
    (folder / "latin.md").write_bytes(FRONT.encode().replace(b"team", b"\xba").replace(b"year", b"\xbb") + 500 * b"More. ")
    (folder / "damaged.md").write_bytes(FRONT.encode().replace(b"team", b"\xba").replace(b"year", b"\xbb") + 100 * "Möre. ".encode())
    (folder / "open.md").write_text("---\nteam: nobody\nThe line that ends it is missing.\n")
    (folder / "tar.txt").write_text("---\nteam: text\n---\nTo unpack an archive, run tar with -xf.\n")
    (folder / "tar.txt.meta.json").write_text('{"team": "packers", "sizes": [1, 2.5]}')
    return folder


def metadata(out):
    listed = run("list", out).stdout.split()
    shown = [json.loads(run("show", "--json", out, name).stdout) for name in listed]
    return {document["path"]: document.get("metadata") for document in shown}


def test_metadata_of_files(docs, tmp_path):
    out = tmp_path / "collection"
    bread = {"team": "bakers", "year": 2024, "public": True, "date": "2024-05-31", "title": "Bread: the book",
             "tags": ["dough", "hot oven", 7], "authors": ["Ada", "7"], "nested": [],
             "places": ["Rome, Italy", "Oslo"], "motto": "it's bread", "subtitle": "Bread: again", "summary": "Two lines",
             "see": "*authors"}
    tar = {"team": "packers", "sizes": [1, 2.5]}
    run("build", "--out", out, *MODEL, docs)
    latin = {{"team": "º", "year": "»"}.get(key, key): value for key, value in bread.items()}
    damaged = {key: value for key, value in bread.items() if key not in ("team", "year")}
    assert metadata(out) == {"docs/bread.md": bread, "docs/latin.md": latin, "docs/damaged.md": damaged, "docs/open.md": None, "docs/tar.txt": tar}
    run("add", "--meta", "team=all", "--meta", "more=1", out, docs)
    assert metadata(out) == {"docs/bread.md": {**bread, "team": "all", "more": 1}, "docs/open.md": {"team": "all", "more": 1},
                             "docs/latin.md": {**latin, "team": "all", "more": 1},
                             "docs/damaged.md": {**damaged, "team": "all", "more": 1},
                             "docs/tar.txt": {**tar, "team": "all", "more": 1}}

    found = run("search", "--filter", '{"range": {"date": {"gte": "2024-01-01"}}}', out, "archive").stdout
    assert "docs/bread.md" in found and "docs/tar.txt" not in found
    assert "one operator" in run("search", "--filter", "{}", out, "archive", code=1).stderr

    bakers = ["--set", 'retrieval.filter={"eq": {"team": "bakers"}}']  # of the configuration: as a server reads it
    run("add", "--meta", "team=bakers", out, docs / "bread.md")
    found = run("search", *bakers, out, "archive").stdout
    assert "bread.md" in found and "docs/tar.txt" not in found
    assert run("search", *bakers, "--filter", '{"eq": {"team": "all"}}', out, "archive").stdout == ""

    few = ["--set", "retrieval.max_metadata_values=5"]
    (docs / "bread.md.meta.json").write_text('{"a": [1, 2, 3, 4, 5, 6]}')
    refused = run("add", *few, out, docs / "bread.md", code=2).stderr
    assert "bread.md: the metadata has" in refused and "the limit is 5 (option retrieval.max_metadata_values)" in refused
    small = ["--set", "retrieval.max_metadata_bytes=40"]
    assert "(option retrieval.max_metadata_bytes)" in run("add", *small, "--meta", "long=" + "x" * 40, out, docs / "bread.md", code=2).stderr
    assert "(option retrieval.max_metadata_bytes)" in run("build", *small, "--out", tmp_path / "small", *MODEL, docs, code=2).stderr
    (docs / "bread.md.meta.json").unlink()

    (docs / "tar.txt.meta.json").write_text("[1]")
    assert "tar.txt.meta.json: an array, not an object" in run("add", out, docs, code=2).stderr


def test_files_do_not_set_the_servers_own_names(docs, tmp_path):
    """As whose a file is and until when: its author would decide what others find."""
    out = tmp_path / "collection"
    (docs / "owned.md").write_text("---\n$owner: alice\n$until: 2\nteam: x\n---\n# Owned\n\nA page.\n")
    (docs / "toml.md").write_text('+++\n"$until" = 2\nteam = "x"\n+++\n# Toml\n\nA page.\n')
    (docs / "tar.txt.meta.json").write_text('{"team": "packers", "$until": 2}')
    said = run("build", "--out", out, *MODEL, docs, code=2).stderr
    assert "tar.txt.meta.json: $until: names that begin with $ are the server's own" in said
    shown = metadata(out)
    assert shown["docs/owned.md"] == shown["docs/toml.md"] == {"team": "x"} and "docs/tar.txt" not in shown


def test_metadata_behind_a_link(docs, tmp_path):
    """A link beside a file shows nothing of other folders."""
    out = tmp_path / "collection"
    (tmp_path / "secret.json").write_text('{"password": "kiwi"}')
    (docs / "tar.json").write_text('{"team": "packers"}')
    (docs / "tar.txt.meta.json").unlink()
    (docs / "tar.txt.meta.json").symlink_to("tar.json")
    (docs / "open.md.meta.json").symlink_to(tmp_path / "secret.json")
    said = run("build", "--out", out, *MODEL, docs, code=2).stderr
    assert "open.md.meta.json: a link that leads to another folder" in said
    shown = metadata(out)
    assert shown["docs/tar.txt"] == {"team": "packers"} and "docs/open.md" not in shown


TOML = '''+++
title = "Bread: the \\"book\\""
tags = ["dough", 'hot oven', 7,
  "more", [1, 2]]  # a comment
year = 2024
public = true
date = 2024-05-31
motto = """
Two
lines"""
"quoted name" = 'x = y'
place = { city = "Rome" }
[params]
deep = "no"
+++
# A heading

Knead the dough for ten minutes.
'''


def test_toml_and_what_is_no_passage(tmp_path):
    """Front matter gives title and metadata, and no passage is made of it."""
    out, folder = tmp_path / "collection", tmp_path / "docs"
    folder.mkdir()
    (folder / "toml.md").write_text(TOML)
    (folder / "yaml.md").write_text(FRONT)
    run("build", "--out", out, *MODEL, folder)
    shown = json.loads(run("show", "--json", out, "docs/toml.md").stdout)
    assert shown["title"] == 'Bread: the "book"' and shown["text"] == TOML
    assert shown["metadata"] == {"title": 'Bread: the "book"', "tags": ["dough", "hot oven", 7, "more"], "year": 2024, "public": True,
                                 "date": "2024-05-31", "motto": "Two\nlines", "quoted name": "x = y", "place": []}
    assert json.loads(run("show", "--json", out, "docs/yaml.md").stdout)["title"] == "Bread: the book"
    for words in ("motto", "bakers", "2024-05-31"):
        hits = [json.loads(line) for line in run("search", "--json", "-k", "10", out, words).stdout.splitlines()]
        assert hits and all("motto" not in hit["text"] and "bakers" not in hit["text"] for hit in hits)
