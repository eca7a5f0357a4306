"""Cleaning, repetition, the split, and the tokenizer."""

import json

import pytest
from retro_train import corpus, tokenizer
from retro_train.corpus import FileLimit, Filters

WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau upsilon".split()


def text(seed, words=120):
    import random

    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) + rng.choice("abcdefgh") for _ in range(words)) + "\n"


def test_normalise():
    assert corpus.normalise("a\u0301 \r\nb\x07\t\n\n\n\nc\n\n") == "\u00e1\nb\n\nc\n"


def test_exact_and_partial_repetition_goes():
    a, b = text(1), text(2)
    documents = [("a", a), ("a2", a), ("half", a + text(3, 60)), ("b", b), ("less", b[: len(b) // 4] + text(4, 200)), ("none", None)]
    kept, reasons = corpus.clean(documents, Filters())
    assert [name for name, _ in kept] == ["a", "b", "less"]
    assert dict(reasons) == {"same": 1, "repeats": 1, "unreadable": 1}


def test_filters_give_their_reason():
    f = Filters()
    assert corpus.unsuitable("word " * 20, f) == "short"
    assert corpus.unsuitable("1234 5678 " * 100, f) == "letters"
    assert corpus.unsuitable("word " * 100_000, f) == "long"
    assert corpus.unsuitable(text(1), f) is None


def test_furniture_goes_and_short_lines_stay():
    line = "Home | Documentation | Search this manual"
    texts = [f"{line}\nNAME\n{text(i)}" for i in range(5)]
    cleaned = corpus.drop_furniture(texts, Filters(furniture_documents=4))
    assert all(line not in t and "NAME" in t for t in cleaned)
    assert corpus.drop_furniture(texts, Filters(furniture_documents=5)) == texts


def test_few_files_of_large_folders():
    names = [f"{folder}/{i}" for folder, count in (("large", 50), ("small", 5), ("whole", 40)) for i in range(count)]
    chosen = FileLimit(10, ("large", "small")).choose(reversed(names))
    count = lambda folder: sum(name.startswith(folder) for name in chosen)
    assert chosen == sorted(chosen) and (count("large"), count("small"), count("whole")) == (10, 5, 40)
    assert set(FileLimit(6, ("large", "small")).choose(names)) < set(chosen)  # a smaller choice is part of a larger one
    assert FileLimit().choose(names) == sorted(names) and len(FileLimit(3).choose(names)) == 9
    assert sum(corpus.is_held_out(name, 0.5) for name in FileLimit(20, ("large",)).choose(names[:50])) in range(5, 16)


def test_folders_are_named_by_first_words(tmp_path):
    (tmp_path / "list").write_text("# packages\nlinux-doc-6.1 GPL-2\n\nperl-doc # another\n")
    assert corpus.read_folder_names(tmp_path / "list") == ("linux-doc-6.1", "perl-doc")


def test_split_is_by_document_and_deterministic(tmp_path):
    source = tmp_path / "x.jsonl"
    source.write_text("".join(json.dumps({"id": f"dir/{i}", "text": text(i)}) + "\n" for i in range(60)))
    filters = Filters(held_out=0.3)
    report = corpus.prepare(source, tmp_path / "a", None, filters)
    again = corpus.prepare(source, tmp_path / "b", None, filters)
    assert report == again and report["train"]["documents"] + report["valid"]["documents"] == 60
    assert 8 < report["valid"]["documents"] < 30
    assert report["held_out"] == [n for n in sorted(f"dir/{i}" for i in range(60)) if corpus.is_held_out(n, 0.3)]
    names = [{n for n, _ in corpus.prepared_documents(tmp_path / "a", part)} for part in ("train", "valid")]
    assert not names[0] & names[1] and len(names[0] | names[1]) == 60


def test_file_names_stay_inside():
    assert corpus.file_name("../../etc/pass wd") == "%2E./%2E./etc/pass%20wd.txt"
    assert corpus.file_name("/a//b.html") == "a/b.html.txt"
    assert len(corpus.file_name("x" * 500)) < 210
    assert corpus.file_name("x" * 500) != corpus.file_name("x" * 501)


def test_two_documents_of_one_id_are_refused(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}\n')
    with pytest.raises(ValueError, match="same id"):
        corpus.read_documents(tmp_path / "x.jsonl", None)


def test_tokenizer_takes_any_text_back(tmp_path):
    tokenizer.train([text(i) for i in range(20)], 400).save(str(tmp_path / "tokenizer.json"))
    v = tokenizer.Vocabulary(tmp_path / "tokenizer.json")
    assert v.tokenizer.token_to_id(tokenizer.END) == 0 and v.size == 400
    for sample in (text(99), "Grüße, 世界 \U0001f600\n\ttab  two", "<|endoftext|> is text"):
        ids = v.encode(sample)
        assert v.decode(ids) == sample and 0 not in ids
        assert v.bytes[ids].sum() == len(sample.encode())
