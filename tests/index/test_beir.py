"""retro-eval beir against the same figures, computed here from retro-index search."""
import json
import math
import subprocess

import pytest

from test_retro_index import INDEX, MODEL, build, run

EVAL = INDEX.parent / "retro-eval"
ANIMALS = ["cat", "dog", "horse", "otter", "heron", "badger", "salmon", "beetle"]
PLACES = ["river", "meadow", "harbour", "attic", "market"]
GRADES = {"q1": {"cat-river": 2, "otter-river": 1, "gone": 1}, "q2": {"heron-harbour": 1, "dog-attic": 0},
          "beetle-market": {"beetle-meadow": 3, "beetle-market": 3}}
QUERIES = {"q1": "a cat at the river", "q2": "heron harbour", "beetle-market": "beetle market", "unasked": "nothing"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A title, an empty line in the corpus, a query named as a document, a document that is gone, grades of 0."""
    folder = tmp_path_factory.mktemp("beir")
    records = [{"_id": f"{a}-{p}", "title": a, "text": f"The {a} was seen near the {p}.", "metadata": {}} for a in ANIMALS for p in PLACES]
    lines = [json.dumps(record) for record in records]
    lines.insert(7, "")
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "queries.jsonl").write_text("".join(json.dumps({"_id": k, "text": v}) + "\n" for k, v in QUERIES.items()))
    (folder / "qrels").mkdir()
    rows = [f"{query}\t{document}\t{grade}\n" for query, graded in GRADES.items() for document, grade in graded.items()]
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    (folder / "qrels/dev.tsv").write_text("".join(rows[:2]))
    built = build(folder / "collection", "--index", "Exact", folder / "corpus.jsonl")
    assert built.returncode == 0, built.stderr
    return folder


def evaluate(folder, *options, code=0):
    done = subprocess.run([EVAL, "beir", *MODEL, "--set", f"retrieval.collection={folder / 'collection'}", *options, folder],
                          capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done


def ranking(folder, query):
    """Names of documents as retro-index search orders them."""
    done = run("search", "--json", *MODEL, "--k", 101, folder / "collection", QUERIES[query])
    assert done.returncode == 0, done.stderr
    names = [json.loads(line)["_id"] if line else "" for line in (folder / "corpus.jsonl").read_text().splitlines()]
    paths = [json.loads(line)["path"] for line in done.stdout.splitlines()]
    return [names[int(path.rsplit("#", 1)[1]) - 1] for path in paths]


def figures(folder, query):
    found = [name for name in ranking(folder, query) if name != query]
    graded = {name: grade for name, grade in GRADES[query].items() if grade > 0}
    gain = sum(graded.get(name, 0) / math.log2(i + 2) for i, name in enumerate(found[:10]))
    best = sum(grade / math.log2(i + 2) for i, grade in enumerate(sorted(graded.values(), reverse=True)[:10]))
    return gain / best, len(set(found[:100]) & set(graded)) / len(graded)


def test_figures(folder):
    done = evaluate(folder, "--json")
    rows = {row["way"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert list(rows) == ["vectors", "words", "hybrid"] and all(row["queries"] == 3 for row in rows.values())
    gains, recalls = zip(*(figures(folder, query) for query in GRADES))
    assert 0 < sum(gains) < 3
    assert rows["hybrid"]["ndcg@10"][0] == pytest.approx(sum(gains) / 3, abs=1e-4)
    assert rows["hybrid"]["recall@100"][0] == pytest.approx(sum(recalls) / 3, abs=1e-4)
    for row in rows.values():
        for value, low, high in (row["ndcg@10"], row["recall@100"]):
            assert 0 <= low <= value <= high <= 1
    assert "lacks the documents of 1 grades" in done.stderr


def test_table_and_splits(folder):
    table = evaluate(folder).stdout
    assert "nDCG@10" in table and "(3 queries)" in table and table.count("\n") == 4
    assert "(1 queries)" in evaluate(folder, "--split", "dev").stdout
    assert "qrels/train.tsv" in evaluate(folder, "--split", "train", code=1).stderr


@pytest.mark.parametrize("name, text, words", [
    ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\tcat-river\thigh\n", "test.tsv:2: the grade must be a whole number"),
    ("qrels/test.tsv", "q1 cat-river 1\n", "test.tsv:1: expected QUERY, DOCUMENT and GRADE"),
    ("qrels/test.tsv", "q1\tcat-river\t0\n", "no grade above 0"),
    ("qrels/test.tsv", "q9\tcat-river\t1\n", 'no text of query "q9"'),
    ("queries.jsonl", '{"_id": "q1"', "queries.jsonl:1: "),
    ("corpus.jsonl", '{"text": "A cat."}\n', 'corpus.jsonl:1: "_id" is missing')])
def test_what_is_wrong_is_named(folder, tmp_path, name, text, words):
    for path in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text((folder / path).read_text())
    (tmp_path / name).write_text(text)
    (tmp_path / "collection").symlink_to(folder / "collection")
    assert words in evaluate(tmp_path, code=1).stderr


def test_another_collection(folder, tmp_path):
    """It would score 0, as a bad search does."""
    for path in ("corpus.jsonl", "queries.jsonl", "qrels"):
        (tmp_path / path).symlink_to(folder / path)
    (tmp_path / "note.md").write_text("A note.\n")
    assert build(tmp_path / "collection", "--index", "Exact", tmp_path / "note.md").returncode == 0
    assert "no document of corpus.jsonl" in evaluate(tmp_path, code=1).stderr
