"""Questions derived from manual pages, their chunks, and their place in the training stream."""

import numpy as np
import pytest
import standin
from retro_train import data, questions, tokenizer
from retro_train.config import ModelConfig
from retro_train.neighbours import write_neighbours

PAGE = """NAME
       frob, frobnicate - turn the knobs of a file

SYNOPSIS
       frob [-x] FILE

DESCRIPTION
       -x     turn every knob
              twice

       -o, --output=FILE
              Write to FILE. %s

              The file is made.

RETURN VALUE
       Zero on success.

ERRORS
       EBADF  The descriptor is bad.

       EIO    The knob is stuck.

       EIO    Another reason.
""" % ("It may be long. " * 40)


def test_questions_of_a_page():
    asked = dict(questions.questions_of(PAGE))
    assert asked["What is frob?"] == "frob - turn the knobs of a file"
    assert asked["Which manual is about this: turn the knobs of a file?"] == "frob"
    assert asked["What does frob return?"] == "Zero on success."
    assert asked["What does the option -x of frob do?"] == "turn every knob twice"
    long = asked["What does the option -o, --output=FILE of frob do?"]
    assert long.startswith("Write to FILE. It may be long.") and long.endswith("long.") and len(long) <= questions.LONGEST
    assert asked["When does frob fail with EIO?"] == "The knob is stuck."
    assert len(asked) == 7
    assert questions.questions_of("frob turns knobs\n\nNAME\n\nno page\n") == []


def test_some_are_chosen_and_stay_chosen():
    asked = questions.questions_of(PAGE)
    three = questions.choose(asked, 3)
    assert len(three) == 3 and set(questions.choose(asked, 2)) < set(three)
    assert questions.choose(asked[::-1], 3) == three[::-1]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.train([PAGE] * 4, 400).save(str(path))
    return tokenizer.Vocabulary(path)


def test_a_question_ends_a_chunk_and_its_answer_begins_one(vocabulary):
    m = 64
    rows, queries = questions.question_chunks([("frob.1", PAGE)], vocabulary, m, 0, 9)
    assert len(rows) == len(queries) and rows.shape[1] == m and all(q["document"] == "frob.1" for q in queries)
    first = [i for i, q in enumerate(queries) if q["text"].startswith("Question: ")]
    assert len(first) > 3 and first[0] == 0
    for i, query in enumerate(queries):
        asked = i in first
        filled = np.flatnonzero(rows[i])
        assert vocabulary.decode(rows[i][filled]) == query["text"] and (np.diff(filled) == 1).all()
        assert filled[-1] == m - 1 and query["text"].endswith("\nAnswer:") if asked else filled[0] == 0
    answer = "".join(q["text"] for q in queries[first[0] + 1 : first[1]])
    assert answer == " frob - turn the knobs of a file\n"


def test_no_chunk_reads_a_question(tmp_path):
    """The stream has them, the neighbours are the collection's."""
    config = ModelConfig(architecture="retro", num_layers=2, hidden_size=32, num_attention_heads=2, vocab_size=400, max_position_embeddings=64,
                         position_embedding_type="learned_absolute", activation="gelu_tanh", retro_layers=[2], retro_chunk_length=8,
                         retro_num_neighbors=2, eod_token_id=0)
    standin.data_folder(tmp_path, config)
    plain = data.read_training_data(tmp_path, config, 32, 4, 0, data.NeighbourOptions())
    asked = np.full((6, 8), 499)  # a token of no document
    asked.astype("<u4").tofile(tmp_path / "questions.tokens")
    with pytest.raises(OSError):
        data.read_training_data(tmp_path, config, 32, 4, 0, data.NeighbourOptions())
    write_neighbours(tmp_path / "questions.neighbours", np.full((6, 2), 5), np.ones((6, 2)), len(plain.collection))
    options = data.NeighbourOptions(drop_sequence=0, drop_chunk=0, self_share=0, self_end=0)
    both = data.read_training_data(tmp_path, config, 32, 4, 0, options)
    assert both.chunks == plain.chunks + 6
    seen = 0
    for step in range(both.chunks // 16):
        batch = both.batch(step, 0.0)
        assert not (batch.neighbours == 499).any()
        for row, chunk in enumerate(both.first_chunks(step)):
            for j in range(both.l):
                if (chunk + j) % both.chunks >= plain.chunks:
                    seen += 1
                    assert (batch.neighbours[row, j, :, :8].numpy() == both.collection.tokens[5]).all()
    assert seen > 0
