"""Quotes: whatever stands between quotation marks in an answer stands so in a passage that was read. Each is looked
for here in the document's own file, by code that knows nothing of how it was written; models are random, or small."""
import json
import pathlib
import re
import subprocess
import sys

import pytest
from chat_model import make_chat_model
from conftest import BUILD, DEPS, MODEL, ROOT, Server, loads

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import downloaded  # noqa: E402

PAGES = ("architecture", "indexing", "serving", "testing")
TEXTS = {page: (ROOT / "tests/texts" / f"{page}.md").read_bytes() for page in PAGES}
QUOTE = re.compile("\"([^\"]*)\"|\u201c([^\u201d]*)\u201d|\u201e([^\u201c\u201d]*)[\u201c\u201d]|\u00ab([^\u00bb]*)\u00bb")
MARKS = "\"\u00ab\u00bb\u201c\u201d\u201e\u201f"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("quotes")
    write_config(path, "retro", ROOT / "models" / MODEL)
    pages = [ROOT / "tests/texts" / f"{page}.md" for page in PAGES]
    done = subprocess.run([BUILD / "retro-index", "build", "--out", path / "collection", "--config", path / "retro.json",
                           *pages], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    downloaded.write_folder(path / "tiny", {"do_sample": False})
    make_chat_model(path / "script")
    return path


def write_config(path, name, model, **retrieval):
    (path / f"{name}.json").write_text(json.dumps({
        "model": {"path": str(model), "dtype": "f32"},
        "retrieval": {"collection": str(path / "collection"), "embedder": str(DEPS / "minilm"),
                      "prompt_tokens": 200 if model.name == MODEL else 1200, **retrieval},
        "server": {"port": 0, "max_choices": 16}}))
    return path / f"{name}.json"


def opened(name, config):
    @pytest.fixture(scope="module", name=name)
    def open_server(folder, tmp_path_factory):
        running = Server(config(folder), tmp_path_factory.mktemp(name))
        yield running
        assert running.stop() == 0, running.log.read_text()
    return open_server


retro = opened("retro", lambda folder: folder / "retro.json")
llama = opened("llama", lambda folder: write_config(folder, "llama", folder / "tiny"))
always = opened("always", lambda folder: write_config(folder, "always", folder / "tiny", quotes=True, quote_words=2))
scripted = opened("scripted", lambda folder: write_config(folder, "scripted", folder / "script", quotes=True))


def mark_bias(server, amount):
    """Random models hardly ever write a quotation mark: both kinds of token with one are made likelier."""
    ids = server.post({"prompt": 'a "', "add_special_tokens": False}, "/tokenize").json()["tokens"]
    return {str(ids[-1]): amount}


def words_of(text):
    return [word for word in text.split() if re.search(r"\w", word)]


def is_whole(text, start, end):
    """The bytes begin with a word and end with one: of what no blank or quotation mark parts from them, no letter."""
    before = re.search(rf"[^\s{MARKS}]*\Z", text[:start].decode())[0]
    behind = re.match(rf"[^\s{MARKS}]*", text[end:].decode())[0]
    return not re.search(r"\w", before) and not re.search(r"\w", behind)


def document_of(citation):
    return TEXTS[pathlib.Path(citation["document"]).stem]


def check_citation(citation, text, least=3):
    """The quote is in its document, at its bytes, in whole words; and in the answer, at its characters."""
    source, start, end = document_of(citation), citation["start"], citation["end"]
    quote = source[start:end].decode()
    assert quote == citation["quote"] == text[citation["answer_start"]:citation["answer_end"]]
    assert len(words_of(quote)) >= least and is_whole(source, start, end), quote
    if citation["line"]:
        assert citation["line"] == source[:start].count(b"\n") + 1


def check_answer(text, citations, found, finish, least=3):
    """All that stands between marks is cited, and was read; returns how many quotes there were."""
    quotes = [next(group for group in match.groups() if group is not None) for match in QUOTE.finditer(text)]
    rest = QUOTE.sub("", text)
    if finish == "stop":
        assert not any(mark in rest for mark in MARKS), text
    cited = [c for c in citations if "quote" in c]
    for citation in cited:
        check_citation(citation, text, least)
        [entry] = [f for f in found if all(f[key] == citation[key] for key in ("chunk", "position"))]
        entry = entry["neighbors"][citation["number"] - 1]
        assert entry["document"] == citation["document"] and entry["start"] <= citation["start"]
    assert [c["quote"] for c in cited][:len(quotes)] == quotes
    assert len(cited) - len(quotes) in (0, 1)
    return len(quotes)


def citations_of(reply, index):
    return [c for c in reply["citations"] if c["index"] == index]


def found_of(reply, index):
    return [f for f in reply["retrieval"] if f["index"] == index]


def check_reply(reply, least=3):
    return sum(check_answer(c["text"], citations_of(reply, c["index"]), found_of(reply, c["index"]), c["finish_reason"], least)
               for c in reply["choices"])


@pytest.mark.parametrize("mode", ["attention", "prompt", "both"])
def test_hundreds_of_quotes_are_true(retro, mode):
    quotes, answers = 0, 0
    bias = mark_bias(retro, 4)
    for seed in range(5):
        reply = retro.complete("The index", seed=seed, n=16, max_tokens=70, temperature=1.2, logit_bias=bias,
                               retrieval={"quotes": True, "mode": mode, "k": 2})
        quotes += check_reply(reply)
        answers += len(reply["choices"])
    assert answers == 80 and quotes >= 40


def test_quotes_of_random_weights(llama):
    """Every byte is a token: half a character may stand at the end of one."""
    bias = mark_bias(llama, 6)
    quotes = 0
    for seed in range(8):
        reply = llama.complete("The index", seed=seed, n=12, max_tokens=150, temperature=2, logit_bias=bias,
                               retrieval={"quotes": True, "quote_words": 1 + seed % 4, "k": 2})
        quotes += check_reply(reply, 1 + seed % 4)
    assert quotes >= 100


def test_passages_sought_again(llama):
    bias, quotes, later = mark_bias(llama, 8), 0, 0
    for seed in range(4):
        reply = llama.complete("The index", seed=seed, n=8, max_tokens=200, temperature=2, logit_bias=bias,
                               retrieval={"quotes": True, "quote_words": 2, "every": 40, "k": 1})
        quotes += check_reply(reply, 2)
        later += sum(c["chunk"] > 0 for c in reply["citations"])
    assert quotes >= 20


def test_streams_say_the_same(retro, llama):
    for server in (retro, llama):
        fields = {"seed": 3, "max_tokens": 120, "temperature": 1.3, "logit_bias": mark_bias(server, 6),
                  "retrieval": {"quotes": True, "k": 2}}
        whole = server.complete("The index", **fields)
        events = list(server.stream("The index", **fields))
        assert "".join(c["text"] for e in events for c in e["choices"]) == whole["choices"][0]["text"]
        assert [c for e in events for c in e.get("citations", [])] == whole["citations"]
        assert any("quote" in c for c in whole["citations"])


def test_an_echoed_prompt_counts(llama):
    reply = llama.complete('Ä "prompt" ', echo=True, n=6, seed=4, max_tokens=120, temperature=2,
                           logit_bias=mark_bias(llama, 8), retrieval={"quotes": True, "k": 2})
    cited = [c for c in reply["citations"] if "quote" in c]
    assert cited
    for c in cited:
        check_citation(c, reply["choices"][c["index"]]["text"])


def test_drafts_change_nothing(folder, tmp_path, llama, retro):
    """Guesses are drawn under the same masks, one by one."""
    for server, name in ((llama, "llama"), (retro, "retro")):
        fields = {"max_tokens": 150, "n": 4, "seed": 9, "logit_bias": mark_bias(server, 6), "retrieval": {"quotes": True}}
        replies = []
        for drafts in ("off", "always"):
            other = Server(folder / f"{name}.json", tmp_path, f"server.drafts={drafts}")
            replies += [other.complete("The index", temperature=t, **fields) for t in (0, 1)]
            assert other.stop() == 0, other.log.read_text()
        for plain, drafted in zip(replies[:2], replies[2:]):
            assert plain["choices"] == drafted["choices"] and plain["citations"] == drafted["citations"]
        assert sum(r["usage"]["completion_tokens_details"]["drafted_tokens"] for r in replies[2:]) > 0


def test_answer_is_reproducible_beside_others(llama):
    """Grammars are shared, what may be quoted is not."""
    fields = {"max_tokens": 100, "temperature": 2, "logit_bias": mark_bias(llama, 6), "seed": 5}
    texts = ["my own words are only mine", "somebody else wrote this text here"]
    alone = [llama.complete("x", retrieval={"quotes": True, "neighbors": [text]}, **fields)["choices"][0]["text"]
             for text in texts]
    streams = [llama.stream("x", retrieval={"quotes": True, "neighbors": [text]}, **fields) for text in texts]
    beside = ["".join(c["text"] for e in stream for c in e["choices"]) for stream in streams]
    assert beside == alone
    for text, answer in zip(texts, alone):
        for match in QUOTE.finditer(answer):
            assert match[0][1:-1] in text


def test_given_texts(llama, retro):
    given = ["Nothing is said here.", 'The caf\u00e9 opens at noon, "as always", on Mondays.\nAnd then?']
    for server in (llama, retro):
        reply = server.complete("x", n=8, max_tokens=120, temperature=1.5, seed=1, logit_bias=mark_bias(server, 8),
                                retrieval={"quotes": True, "quote_words": 2, "neighbors": given})
        cited = [c for c in reply["citations"] if "quote" in c]
        assert cited
        for c in cited:
            text = given[c["number"] - 1].encode()
            assert c["document"] is None and text[c["start"]:c["end"]].decode() == c["quote"]
            assert reply["choices"][c["index"]]["text"][c["answer_start"]:c["answer_end"]] == c["quote"]
            assert is_whole(text, c["start"], c["end"])


def test_nothing_to_quote(llama, retro):
    """Too few words, or nothing found: no quotation mark is written, however likely it is."""
    for server, retrieval in ((llama, {"neighbors": ["Two words."]}), (llama, {"min_similarity": 1}),
                              (retro, {"min_similarity": 1})):
        reply = server.complete("x", n=4, max_tokens=60, temperature=1, seed=1, logit_bias=mark_bias(server, 100),
                                retrieval={"quotes": True, **retrieval})
        assert reply["citations"] == []
        assert not any(mark in c["text"] for c in reply["choices"] for mark in MARKS)


SCHEMA = {"type": "object", "required": ["claim", "quote"], "properties": {
    "claim": {"type": "string", "maxLength": 20}, "quote": {"type": "string", "format": "quote"}}}


def schema_fields(schema):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": schema}}}


def test_schema(llama):
    filled = 0
    for seed in range(12):
        reply = llama.complete("x", seed=seed, max_tokens=400, temperature=1, retrieval={"k": 2}, **schema_fields(SCHEMA))
        [choice] = reply["choices"]
        if choice["finish_reason"] != "stop":
            continue
        quote = loads(choice["text"])["quote"]
        assert [c["quote"] for c in reply["citations"] if "quote" in c] == ([quote] if quote else [])
        for c in reply["citations"]:
            assert document_of(c)[c["start"]:c["end"]].decode() == quote
            inside = choice["text"][c["answer_start"]:c["answer_end"]]
            assert loads(f'"{inside}"') == quote
            filled += 1
    assert filled > 3


def test_schema_with_passages_that_need_escapes(llama):
    given = 'He said "no\\yes" and\n\tleft it there.'
    schema = {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "string", "format": "quote", "minLength": 1}}
    whole = 0
    for seed in range(6):
        reply = llama.complete("x", seed=seed, max_tokens=300, temperature=1, **schema_fields(schema),
                               retrieval={"neighbors": [given], "quote_words": 2})
        if reply["choices"][0]["finish_reason"] == "stop":
            quotes = loads(reply["choices"][0]["text"])
            assert all(quote in given for quote in quotes)
            assert [c["quote"] for c in reply["citations"]] == quotes
            whole += 1
    assert whole > 0


def test_grammar(llama):
    reply = llama.complete("x", max_tokens=500, temperature=1, seed=2, retrieval={"k": 2, "quotes": True},
                           grammar='root ::= "> " <quote> "\\n"')
    [choice], [cited] = reply["choices"], reply["citations"]
    check_citation(cited, choice["text"])
    if choice["finish_reason"] == "stop":
        assert choice["text"] == f"> {cited['quote']}\n"


def test_every_text_needs_a_quote(llama):
    reply = llama.post({"prompt": "x", "max_tokens": 9, "grammar": 'root ::= <quote> "."',
                        "retrieval": {"neighbors": ["one two"]}})
    assert reply.status == 400
    assert "none of the passages that were read has a quote of 3 words" in reply.error()["message"]


def test_refusals(llama, retro):
    def refused(server, **fields):
        reply = server.post({"prompt": "x", "max_tokens": 4, **fields})
        assert reply.status == 400, reply.body
        return reply.error()

    off = {"enabled": False}
    assert "this request reads none" in refused(llama, retrieval={**off, "quotes": True})["message"]
    assert "this request reads none" in refused(llama, retrieval=off, grammar="root ::= <quote>")["message"]
    error = refused(llama, grammar='root ::= "a"', retrieval={"quotes": True})
    assert error["param"] == "retrieval.quotes" and "write <quote> in a grammar" in error["message"]
    for words in (0, 65, "3", 1.5):
        assert refused(llama, retrieval={"quote_words": words})["param"] == "retrieval.quote_words"
    assert refused(retro, retrieval={"quotes": 1})["param"] == "retrieval.quotes"
    schema = {"type": "string", "format": "quote", "maxLength": 9}
    assert "maxLength" in refused(llama, **schema_fields(schema))["message"]


def test_exclude(llama):
    """What is not found is not quoted."""
    documents = {n["document"] for f in llama.complete("The index", max_tokens=1, retrieval={"k": 4})["retrieval"]
                 for n in f["neighbors"]}
    reply = llama.complete("The index", n=8, max_tokens=80, temperature=2, seed=1, logit_bias=mark_bias(llama, 8),
                           retrieval={"quotes": True, "exclude": sorted(documents)})
    assert check_reply(reply) > 0
    assert not documents & {c["document"] for c in reply["citations"]}


# Chats, of a server whose answers always quote.

def chat(server, **fields):
    reply = server.post({"messages": [{"role": "user", "content": "How is an index made?"}], **fields}, "/v1/chat/completions")
    assert reply.status == 200, reply.body
    return reply.json()


def test_chats(always):
    quotes = 0
    for seed in range(6):
        reply = chat(always, n=6, seed=seed, max_tokens=120, temperature=2, logit_bias=mark_bias(always, 8))
        for choice in reply["choices"]:
            quotes += check_answer(choice["message"]["content"], citations_of(reply, choice["index"]),
                                   found_of(reply, choice["index"]), choice["finish_reason"], 2)
    assert quotes > 20


def test_usual_quotes_give_way(scripted):
    """The option says nothing where a request says what its answer is, may call tools, or reads nothing."""
    reply = chat(scripted, max_tokens=200, response_format={"type": "json_object"})
    assert reply["choices"][0]["message"]["content"].startswith("{")
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
    assert chat(scripted, tools=tools)["choices"][0]["finish_reason"] == "tool_calls"
    assert "citations" not in chat(scripted, max_tokens=3, retrieval={"enabled": False})
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "tools": tools, "retrieval": {"quotes": True}}
    reply = scripted.post(body, "/v1/chat/completions")
    assert reply.status == 400 and reply.error()["param"] == "retrieval.quotes"
