"""tools/retro_docs/ask_derived.py: which answers count, and what is asked."""

from retro_docs.ask_derived import derive_questions, says
from test_questions import PAGE


def test_five_words_in_a_row_count():
    derived = "Write to FILE. It may be long."
    assert says("-o, --output: write to file, it may be", derived) and not says("write to file, it can be long", derived)
    assert says("Zero, on success.", "zero") and not says("", "zero")


def test_questions_are_about_the_manuals_that_are_named(tmp_path):
    """A stand-in for `retro-index extract`: pages are text already."""
    (tmp_path / "index").write_text('#!/bin/sh\ncat "$2"\n')
    (tmp_path / "index").chmod(0o755)
    (tmp_path / "pages").mkdir()
    for name in ("frob.1", "other.1"):
        (tmp_path / "pages" / name).write_text(PAGE)
    asked = derive_questions(tmp_path / "pages", tmp_path / "index", ["frob.1"], 5)
    assert len(asked) == 5 and all("frob" in question for question, _ in asked)
    assert asked == derive_questions(tmp_path / "pages", tmp_path / "index", ["frob.1"], 5)
