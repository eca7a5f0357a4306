"""What tags of a PDF add to what is seen on its pages, and that wrong ones take nothing away."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import score  # noqa: E402
from tagged import Tagged  # noqa: E402

HEADING, CAPTION = 2, 7
PROSE = "The ferry leaves the harbour at noon and comes back before the tide turns, which it does twice a day. " * 3


def read(tmp_path, content):
    path = tmp_path / "tagged.pdf"
    path.write_bytes(content)
    answer = score.read(path)
    assert not answer["error"], answer["error"]
    document = answer["documents"][0]
    data = document["text"].encode()
    places = [at for at, _ in document["blocks"]] + [len(data)]
    return document, [(kind, data[at:end].decode().strip()) for (at, kind), end in zip(document["blocks"], places[1:])]


def plain():
    """Headings look as the text does: the tags alone say what they are."""
    return (Tagged().part("H1", "Of boats").part("P", PROSE).part("H2", "What a kayak costs").part("P", PROSE).figure("A kayak (red) beside a pier.")
            .page().part("H1", "Of tides").part("P", PROSE))


def test_headings_and_pictures(tmp_path):
    _, blocks = read(tmp_path, plain().write())
    assert [text for kind, text in blocks if kind == HEADING] == ["Of boats", "What a kayak costs", "Of tides"]
    assert (CAPTION, "[Picture: A kayak (red) beside a pier.]") in blocks
    assert [text for _, text in blocks].index("[Picture: A kayak (red) beside a pier.]") < [text for _, text in blocks].index("Of tides")


def test_names_of_the_producer(tmp_path):
    made = Tagged(role_map=b"/Ueberschrift/H1").part("Ueberschrift", "Of boats").part("P", PROSE)
    _, blocks = read(tmp_path, made.write())
    assert (HEADING, "Of boats") in blocks


@pytest.mark.parametrize("tree", [
    b"[]", b"7", b"[99 0 R]", b"[5 0 R]",
    b"[<</Type/StructElem/S/H1/P 5 0 R/K[5 0 R 5 0 R]>>]",
    b"[<</Type/StructElem/S/P/P 5 0 R/Pg 7 0 R/K 0>>]",
    b"[<</Type/StructElem/S/H1/P 5 0 R/Pg 7 0 R/K[0 1 2 3 4 5 6 7 8 9999999]>>]",
    b"[<</Type/StructElem/S/Figure/P 5 0 R/Pg 7 0 R/Alt(" + b"x" * 5000 + b")>>]",
    b"[<</Type/StructElem/S/Figure/P 5 0 R/Pg 7 0 R/Alt(\xfe\xff\xd8\x00\x00\x00)>>]",
    b"[" + b"<</Type/StructElem/S/Sect/K[" * 5000 + b"]>>" * 5000 + b"]",
    b"[" + b"<</Type/StructElem/S/H1/Pg 7 0 R/K 1>>" * 20000 + b"]",
], ids=range(11))
def test_trees_that_are_wrong_lose_nothing(tmp_path, tree):
    document, _ = read(tmp_path, plain().write(tree))
    text = score.flat(document["text"])
    assert text.count(score.flat(PROSE)) == 3 and document["losses"].count("\n") <= 1
    for words in ("Of boats", "What a kayak costs", "Of tides"):
        assert words in text
