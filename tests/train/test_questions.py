"""Questions derived from manual pages, their chunks, and their place in the training stream."""

import numpy as np
import pytest
import standin
from retro_train import data, questions, tokenizer
from retro_train.config import ModelConfig
from retro_train.neighbours import Collection, write_neighbours

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
    assert asked["Which option of frob does this: turn every knob twice?"] == "-x turn every knob twice"
    assert asked["How do I write to FILE with frob?"].startswith("-o, --output=FILE Write to FILE. It may")
    assert asked["Which option of frob writes to FILE?"] == asked["How do I make frob write to FILE?"] == asked["How do I write to FILE with frob?"]
    assert [questions.third_person(order) for order in ("copy all", "match", "display x")] == ["copies all", "matches", "displays x"]
    assert asked["What does the option --output of frob do?"] == long
    assert asked["Which error does frob return if the knob is stuck?"] == "EIO The knob is stuck."
    assert len(asked) == 19
    assert questions.questions_of("frob turns knobs\n\nNAME\n\nno page\n") == []


CALL = """NAME
       open_knob - open a knob

SYNOPSIS
       int open_knob(int flags);

DESCRIPTION
       Opens it.  If the knob is stuck, it is
       turned first.  It stays open.

       K_CLOEXEC (since Linux 9.1)
              Close it on exec.

       K_SYNC Turn it at once.

RETURN VALUE
       On success, open_knob() returns its
       number.  On error, -1 is returned.

ERRORS
       EIO    It is stuck.

       EPERM  It is locked.

       ENOENT There is none.

       EINVAL (since Linux 9) The flags are bad.
"""


def test_questions_of_a_call():
    asked = dict(questions.questions_of(CALL))
    assert asked["What does open_knob() do if the knob is stuck?"] == "If the knob is stuck, it is turned first."
    assert asked["What happens with open_knob if the knob is stuck?"] == "If the knob is stuck, it is turned first."
    assert asked["What does open_knob() return on success?"] == "On success, open_knob() returns its number."
    assert asked["What does open_knob() return on error?"] == "On error, -1 is returned."
    assert asked["What does open_knob return?"] == asked["What does open_knob() return?"]
    assert asked["What does the flag K_CLOEXEC of open_knob() do?"] == "Close it on exec."
    assert asked["What does the flag K_SYNC of open_knob() do?"] == "Turn it at once."
    assert asked["When does open_knob() fail with EIO?"] == "It is stuck."
    assert asked["When does open_knob() fail with EPERM?"] == "It is locked."
    assert asked["When does open_knob() fail with ENOENT?"] == "There is none."
    assert asked["When does open_knob() fail with EINVAL?"] == "(since Linux 9) The flags are bad."
    assert asked["Which flag of open_knob() does this: close it on exec?"] == "K_CLOEXEC Close it on exec."
    assert asked["Which error does open_knob() return if it is locked?"] == "EPERM It is locked."
    assert len(asked) == 20


TOOL = """NAME
       knobctl - turn knobs

DESCRIPTION
       Turns them. The argument knob is the number of one. It does not wait.

       --no-wait
              do not wait for the knob

COMMANDS
       turn KNOB
              Turn the knob once, to the right.

EXIT STATUS
       0      Every knob was turned.

       124    A knob was stuck for too long.
"""


def test_questions_of_arguments_commands_and_exit_statuses():
    asked = dict(questions.questions_of(TOOL))
    assert asked["What is the argument knob of knobctl for?"] == "The argument knob is the number of one."
    assert asked["What does knobctl turn do?"] == "Turn the knob once, to the right."
    assert asked["Which command of knobctl does this: turn the knob once?"] == "turn KNOB Turn the knob once, to the right."
    assert asked["What is the exit status of knobctl: a knob was stuck for too long?"] == "124 A knob was stuck for too long."
    assert asked["What does the exit status 0 of knobctl mean?"] == "0 Every knob was turned."
    assert asked["How do I make knobctl not wait for the knob?"] == "--no-wait do not wait for the knob"


def test_other_words_keep_the_answer_and_stay_the_same():
    for asked in questions.derive_questions(PAGE) + questions.derive_questions(TOOL):
        others = [asked.other(copy) for copy in range(9)]
        assert others == [asked.other(copy) for copy in range(9)]
        assert all(answer == asked.answer and "{" not in question for question, answer in others)
    asked = questions.Asked(("How do I {}?",), "print the number of every directory that was removed", "-n")
    others = {asked.other(copy)[0] for copy in range(50)}
    assert len(others) > 20 and all(question.startswith("How do I ") and question.endswith("?") for question in others)
    assert any("folder" in question for question in others) and any("deleted" in question for question in others)
    assert all(len(question.split()) >= 6 for question in others)


def test_a_command_of_two_words_has_both_names():
    page = PAGE.replace("frob, frobnicate", "frob-all").replace("frob [-x]", "frob all [-x]")
    asked = dict(questions.questions_of(page))
    assert asked["What does the option -x of frob-all do?"] == "turn every knob twice"
    assert "What does the option --output of frob all do?" in asked


def test_some_are_chosen_and_stay_chosen():
    asked = questions.derive_questions(PAGE)
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
    chunks = questions.question_chunks([("frob.1", PAGE)], vocabulary, m, 0, 99)
    rows, queries, places = np.stack(chunks.rows), chunks.queries, chunks.places
    assert len(rows) == len(queries) == len(places) and rows.shape[1] == m and all(q["document"] == "frob.1" for q in queries)
    first = [i for i, q in enumerate(queries) if q["text"].startswith("Question: ")]
    assert len(first) > 3 and first[0] == 0
    for i, query in enumerate(queries):
        asked = i in first
        filled = np.flatnonzero(rows[i])
        assert vocabulary.decode(rows[i][filled]) == query["text"] and (np.diff(filled) == 1).all()
        assert filled[-1] == m - 1 and query["text"].endswith("\nAnswer:") if asked else filled[0] == 0
    answer = "".join(q["text"] for q in queries[first[0] + 1 : first[1]])
    assert answer == " frob - turn the knobs of a file\n"
    for i, (query, place) in enumerate(zip(queries, places)):
        ends = i + 1 in first or i + 1 == len(queries)
        assert place is None if ends else place[0] == "frob.1"
        if "option -x of" in query["text"]:
            assert PAGE.encode()[place[1] :].startswith(b"turn every knob")


def test_manuals_that_are_left_out(vocabulary, tmp_path):
    (tmp_path / "asked").write_text('{"manual": "frob.1", "question": "?"}\n')
    documents = [("a/frob.1.txt", PAGE), ("a/grob.1.txt", PAGE)]
    chunks = questions.question_chunks(documents, vocabulary, 64, 0, 9, questions.read_manuals(tmp_path / "asked"))
    assert {q["document"] for q in chunks.queries} == {"a/grob.1.txt"}


def test_an_answer_is_found_across_lines_by_its_beginning_or_its_end():
    assert questions.find_answer("\u00e9 one  two\n three four five six", "one two three four five six seven") == 3
    assert questions.find_answer("b c d\ne f g", "a b c d e f g") == 0
    assert questions.find_answer("b c d", "x y z") == questions.find_answer("b", "") == -1


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
    np.full(6, -1).tofile(tmp_path / "questions.sources")
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


def test_answers_are_among_the_neighbours_of_questions(tmp_path):
    config = ModelConfig(architecture="retro", num_layers=2, hidden_size=32, num_attention_heads=2, vocab_size=400, max_position_embeddings=64,
                         position_embedding_type="learned_absolute", activation="gelu_tanh", retro_layers=[2], retro_chunk_length=8,
                         retro_num_neighbors=2, eod_token_id=0)
    standin.data_folder(tmp_path, config)
    np.full((9, 8), 499).astype("<u4").tofile(tmp_path / "questions.tokens")
    np.array([3, -1] * 4 + [-1]).tofile(tmp_path / "questions.sources")
    n_chunks = len(Collection(tmp_path / "collection"))
    write_neighbours(tmp_path / "questions.neighbours", np.full((9, 2), 5), np.ones((9, 2)), n_chunks)
    options = data.NeighbourOptions(0, 0, 0, 0, 0, question_share=0.5, answer_share=0.5)
    asked = data.read_training_data(tmp_path, config, 32, 8, 0, options)
    answer, given, turned = asked.collection.neighbour_tokens(3, 16), {True: 0, False: 0}, 0
    for step in range(20):
        batch, chunks = asked.batch(step, 0.0), asked.first_chunks(step)
        turned += int((chunks >= n_chunks).sum())
        for row, j in np.argwhere((chunks[:, None] + np.arange(asked.l)) % asked.chunks >= n_chunks):
            has = any(np.array_equal(tokens, answer) for tokens in batch.neighbours[row, j].numpy())
            known = asked.questions.sources[(chunks[row] + j) % asked.chunks - n_chunks] >= 0
            assert known or not has
            if known:
                given[has] += 1
    assert 60 < turned < 105 and min(given.values()) > 0.3 * sum(given.values())
