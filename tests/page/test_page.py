"""The page in a real browser: what a person sees, points at and types, and what a screen reader is told."""
import json
import re
import subprocess

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import BUILD, EVIL

def new_key(name):
    """A key, and its line for the file."""
    done = subprocess.run([BUILD / "retro-server", "--new-key", name], capture_output=True, text=True, check=True)
    return re.search(r"retro-[0-9a-f]{64}", done.stderr)[0], done.stdout


QUESTION = "open() returns a file descriptor, a small"


def events(*data, end=True):
    """A stream as the server sends it."""
    return "".join(f"data: {json.dumps(one)}\n\n" for one in data) + ("data: [DONE]\n\n" if end else "")


def piece(text="", finish=None, **members):
    return {"choices": [{"index": 0, "text": text, "finish_reason": finish}], **members}


def answer_with(visit, status=200, body="", **headers):
    """Writes the answer of the next requests in the server's place."""
    kind = "text/event-stream" if status == 200 else "application/json"
    visit.page.route("**/v1/completions", lambda route: route.fulfill(
        status=status, body=body, headers={"Content-Type": kind, **headers}))


# Completions.


def test_a_completion_with_its_sources(visit):
    one = visit()
    one.ask(QUESTION)
    assert one.text(".before") == QUESTION and one.text(".written").strip()
    assert re.search(r"first token after [\d.]+ s · \d+ tokens( \(the limit\))? in [\d.]+ s · [\d,]+ tokens/s · seed \d+", one.text(".measured"))
    first = one.page.locator("aside li").first
    assert first.locator(".title").inner_text() == "Files"
    assert re.fullmatch(r"documents/files\.md\nbytes \d+–\d+ · line \d+ · Files · similarity 0\.\d\d", first.locator(".place").inner_text())
    assert "table of open files" in first.locator(".passage").inner_text()
    (body,) = one.bodies()
    assert body["prompt"] == QUESTION and body["stream"] and body["retrieval"]["enabled"]
    first.locator(".unfold").click()
    assert first.locator(".unfold").get_attribute("aria-expanded") == "true"


def test_side_by_side_is_the_same_question_twice(visit):
    one = visit()
    one.ask(QUESTION, "both")
    labels = one.page.locator(".answer .label").all_inner_texts()
    assert labels == ["With your documents", "Without"]
    on, off = sorted(one.bodies(), key=lambda body: not body["retrieval"]["enabled"])
    assert on.pop("retrieval")["enabled"] and off.pop("retrieval") == {"enabled": False} and on == off
    assert all(text.strip() for text in one.page.locator(".written").all_inner_texts())
    boxes = [box.bounding_box() for box in one.page.locator(".answer").all()]
    assert boxes[0]["y"] == boxes[1]["y"] and boxes[0]["x"] + boxes[0]["width"] < boxes[1]["x"]


def test_without_documents_no_source_is_shown(visit):
    one = visit()
    one.ask(QUESTION, "off")
    assert one.page.locator("aside").is_hidden() and len(one.text(".written")) > 0


def test_that_nothing_is_near_enough_is_told(visit):
    one = visit()
    one.set(min_similarity=0.999)
    one.ask(QUESTION)
    assert one.text("aside h3") == "Sources none was near enough" and one.page.locator("aside li").count() == 0


def test_going_on_begins_where_the_text_ended(visit):
    one = visit()
    one.set(max_tokens=3, temperature=0)
    one.ask(QUESTION)
    assert "3 tokens (the limit)" in one.text(".measured")
    text = one.page.locator(".text").first.text_content()
    one.page.click(".go-on")
    one.wait()
    assert one.bodies()[1]["prompt"].rstrip() == text.rstrip()


def test_an_end_at_once_is_told(visit):
    one = visit()
    answer_with(one, 200, events(piece("", "stop"), {"choices": [], "usage": {"completion_tokens": 1}}))
    one.ask(QUESTION)
    assert one.text(".measured") == "the model ends the text here"


def test_settings_are_sent_and_outlive_a_reload(visit):
    one = visit()
    one.set(temperature=0, max_tokens=7, seed=5, k=1, min_similarity=0.25)
    one.page.reload()
    one.open()
    one.ask(QUESTION)
    (body,) = one.bodies()
    assert (body["temperature"], body["max_tokens"], body["seed"]) == (0, 7, 5)
    assert body["retrieval"] == {"enabled": True, "k": 1, "min_similarity": 0.25, "attention": "tokens", "support": True, "boxes": True, "compare": "off"}
    one.page.click("#open-settings")
    one.page.click("#defaults")
    assert one.page.locator("[name=max_tokens]").input_value() == "256"


def test_another_model_is_chosen(visit, config, start, chat_server, folder):
    """Only the first has documents."""
    others = json.dumps([{"path": str(folder / "talker"), "name": "talker"}])
    one = visit(start(config, f"model.others={others}"))
    assert one.page.title() == "retro-docs – retro-server" and one.page.locator("input[value=complete]").is_checked()
    one.page.select_option("#model", "talker")
    one.until("document.title.startsWith('talker')")
    assert one.page.locator("#reads").is_hidden() and one.page.locator("input[value=chat]").is_checked()
    one.page.fill("#prompt", "Hello")
    one.page.press("#prompt", "Enter")
    one.wait()
    assert one.text(".written").startswith("Hello, world!")
    (body,) = one.bodies()
    assert body["model"] == "talker" and "retrieval" not in body


def test_the_text_is_copied(visit):
    one = visit(permissions=["clipboard-read", "clipboard-write"])
    one.ask(QUESTION)
    one.page.click(".copy")
    one.until("document.querySelector('.reading').textContent === 'Copied.'")
    assert one.page.evaluate("navigator.clipboard.readText()") == one.page.locator(".text").evaluate("e => e.textContent")


# Chats.


def test_a_chat_goes_on_with_what_was_said(visit, chat_server):
    one = visit(chat_server)
    assert one.page.locator("input[value=chat]").is_checked()
    one.ask("Hello there")
    assert one.text(".written") == "Hello, world! Äö 🙂 bye..."
    assert one.text(".question") == "Hello there"
    one.ask("And now?")
    first, *rest = one.bodies()[1]["messages"]
    assert first["role"] == "system" and "as in [1]" in first["content"]
    assert [m["content"] for m in rest] == ["Hello there", "Hello, world! Äö 🙂 bye...", "And now?"]
    one.page.click("#fresh")
    assert one.page.locator("article").count() == 0
    one.set(system="")
    one.ask("Again")
    assert [m["content"] for m in one.bodies()[2]["messages"]] == ["Again"]


def test_a_citation_leads_to_its_passage(visit, chat_server):
    one = visit(chat_server)
    one.ask("cite the bridge", "on")
    assert one.text(".written") == "Öl [1] comes of [2, 1], not of [9], [x] or 2][2]"
    cites = one.page.locator(".cite")
    assert cites.first.inner_text() == "[1]"
    cites.first.click()
    item = one.page.locator("aside li").first
    assert "open" in item.get_attribute("class")
    assert item.locator(".open-source").evaluate("element => element === document.activeElement")


def test_thoughts_stand_apart(visit, chat_server):
    one = visit(chat_server)
    one.page.click("#open-settings")
    one.page.fill("[name=system]", "Be brief.")
    one.page.click("#settings button.main")
    one.ask("think of it")
    assert one.bodies()[0]["messages"][0] == {"role": "system", "content": "Be brief."}
    assert one.text(".written").startswith("The answer")


def test_a_chat_model_completes_too(visit, chat_server):
    one = visit(chat_server)
    one.page.check("input[value=complete]", force=True)
    one.set(max_tokens=4)
    one.ask("abc")
    assert one.requests[-1].url.endswith("/v1/completions")


def test_a_new_chat_knows_nothing_of_an_answer_that_it_cut_off(visit, chat_config, start):
    one = visit(start(chat_config, RETRO_CPU="generic"))
    one.set(max_tokens=1500)
    one.ask("Hello")
    one.page.fill("#prompt", "count")
    one.page.press("#prompt", "Enter")
    one.until("[...document.querySelectorAll('.written')].at(-1).textContent.startsWith('abc')")
    one.page.click("#fresh")
    one.wait()
    one.ask("Hello again")
    assert [m["content"] for m in one.bodies()[-1]["messages"][1:]] == ["Hello again"]


# A stream that is stopped.


@pytest.mark.parametrize("how", ["Escape", "button"])
def test_a_stream_is_stopped(visit, slow_server, how):
    one = visit(slow_server)
    one.set(max_tokens=480, temperature=0)
    one.page.fill("#prompt", "a")
    one.page.press("#prompt", "Enter")
    one.until("document.querySelector('.written')?.textContent.length > 10")
    if how == "Escape":
        one.page.keyboard.press("Escape")
    else:
        one.page.click("#stop")
    one.wait()
    text = one.text(".written")
    assert one.text(".measured").startswith("stopped · ")
    one.until("fetch('health').then(reply => reply.json()).then(health => health.running === 0)")
    assert one.text(".written") == text


# Errors.


@pytest.mark.parametrize("status, code, words, button", [
    (401, "invalid_api_key", "The server wants an API key.", "Enter a key"),
    (429, "rate_limited", "You have asked often enough for now. Try again in 7 s.", "Try again"),
    (503, "server_busy", "The server is busy, or is about to stop. Try again in 7 s.", "Try again"),
    (500, "internal_error", "The server failed at this.", "Try again"),
])
def test_a_refusal_says_what_to_do(visit, status, code, words, button):
    one = visit()
    one.forgives = f"the server responded with a status of {status}"
    error = {"message": f"its <b>words</b> {EVIL}", "type": "t", "param": None, "code": code}
    answer_with(one, status, json.dumps({"error": error}), **{"Retry-After": "7"})
    one.ask(QUESTION)
    trouble = one.page.locator(".answer .trouble")
    assert trouble.locator("p").first.inner_text().startswith(words)
    assert trouble.locator(".said").inner_text() == error["message"]
    assert trouble.get_by_role("button").inner_text() == button


def test_too_long_a_prompt_is_explained(visit):
    one = visit()
    one.forgives = "status of 400"
    one.ask("word " * 1200)
    assert one.text(".answer .trouble p >> nth=0").startswith("This is too long for the model.")


def test_a_server_that_is_gone_is_explained_and_asked_again(visit):
    one = visit()
    one.forgives = "net::ERR_FAILED"
    one.page.route("**/v1/completions", lambda route: route.abort())
    one.ask(QUESTION)
    assert one.text(".answer .trouble p >> nth=0").startswith("The server does not answer.")
    one.page.unroute("**/v1/completions")
    one.page.get_by_role("button", name="Try again").click()
    one.wait()
    assert one.text(".written").strip()


def test_an_answer_that_breaks_off_is_kept(visit):
    one = visit()
    answer_with(one, 200, events(piece("half an ans"), end=False))
    one.ask(QUESTION)
    assert one.text(".written") == "half an ans"
    assert one.text(".answer .trouble p >> nth=0").startswith("The answer broke off.")


def test_a_key_is_asked_for_and_sent(visit, config, start, folder):
    secret, line = new_key("reader")
    (folder / "keys.jsonl").write_text(line)
    one = visit.hear(start(config, f"server.keys_file={folder}/keys.jsonl"))
    one.forgives = "status of 401"
    one.open()
    for typed, said in ((secret[:-1], "The server does not take this API key."), (secret, "")):
        one.page.get_by_role("button", name="Enter a key").click()
        one.page.fill("[name=key]", typed)
        one.page.keyboard.press("Enter")
        one.until("document.querySelector('#facts').textContent || "
                  f"document.querySelector('#welcome .trouble p').textContent.startsWith({json.dumps(said or 'never')})")
    one.ask(QUESTION)
    assert one.text(".written").strip()
    assert one.page.evaluate("[localStorage.length, JSON.parse(sessionStorage['retro-settings']).key]") == [0, secret]


# Foreign text.


def test_words_of_documents_are_text(visit):
    one = visit()
    one.ask("Leek soup takes potatoes and leeks.")
    one.page.wait_for_selector("aside li")
    shown = one.page.locator("aside li", has_text="Leek soup")
    assert EVIL in shown.locator(".title").inner_text() and "<script>alert(2)</script>" in shown.locator(".passage").inner_text()
    assert one.page.locator("main img, main script").count() == 0


def test_words_of_models_are_text(visit):
    one = visit()
    token = {"token": "t", "answer_start": 0, "answer_end": len(EVIL), "shares": [1]}
    found = {"index": 0, "chunk": 0, "position": 0, "neighbors": [
        {"document": EVIL, "title": EVIL, "start": 0, "end": 1, "similarity": 0.5, "text": EVIL}]}
    answer_with(one, 200, events(piece(retrieval=[found]), piece(EVIL), piece("", "stop", attention=[
        {"index": 0, "chunk": 0, "shares": [1], "tokens": [token]}])))
    one.ask(EVIL)
    assert one.text(".text") == EVIL + EVIL and one.page.locator(".token").count() == 1
    assert one.page.locator("main img, main script").count() == 0


# What was read for which words.


def test_the_attention_of_the_model_is_shown(visit):
    """Each token of a chunk divides its whole attention among the chunk's passages."""
    one = visit()
    one.set(seed=1, temperature=0)
    one.ask(QUESTION)
    shares = [float(share.split()[0]) for share in one.page.locator("aside .share").all_text_contents()]
    assert sum(shares) == pytest.approx(100, abs=2) and len(shares) >= 2
    one.page.locator(".sentence").first.hover()
    assert max(weights(one, "aside li")) == 1 and one.page.locator(".token").count() > 5
    one.page.locator("aside li").first.hover()
    assert max(weights(one, ".token")) == 1


def test_a_comparison_is_asked_for_only_where_it_is_wanted(visit):
    one = visit()
    one.set(compare=False)
    one.ask(QUESTION)
    assert "compare" not in one.bodies()[0]["retrieval"] and one.page.locator(".legend").is_hidden()
    one.page.locator(".token").first.hover()
    assert "% likely" not in one.text(".reading")
    one.set(compare=True)
    one.ask(QUESTION)
    one.page.locator("article").last.locator(".token").first.hover()
    assert re.search(r"% likely, .*% without the documents\.$", one.text(".reading"))


def marked(visit, support=None):
    """An answer of two sentences and two passages: 🙂 is two units of a browser's text, and one character of the API."""
    one = visit()
    neighbors = [{"document": f"{name}.md", "title": name, "start": 0, "end": 9, "similarity": 0.8, "text": f"of {name}"}
                 for name in ("first", "second")]
    tokens = [{"token": "Yes 🙂.", "answer_start": 0, "answer_end": 6, "shares": [0.9, 0.1]},
              {"token": " It is", "answer_start": 6, "answer_end": 12, "shares": [0.2, 0.8]},
              {"token": " so.", "answer_start": 12, "answer_end": 16, "shares": [0.4, 0.6]},
              {"token": "", "answer_start": 16, "answer_end": 16, "shares": [0.5, 0.5]}]
    logprobs = [(-0.1, -0.1), (-0.5, -4), (-1, -0.9), (0, 0)]
    compared = [{**token, "logprob": a, "logprob_without": b} for token, (a, b) in zip(tokens, logprobs)]
    answer_with(one, 200, events(
        piece(retrieval=[{"index": 0, "chunk": 0, "position": 0, "neighbors": neighbors}]), piece("Yes 🙂. It is"),
        piece(" so.", "stop", attention=[{"index": 0, "chunk": 0, "shares": [0.5, 0.5], "tokens": tokens}]),
        {"choices": [], "compare": [{"index": 0, "without": "off", "tokens": compared}], **({"support": support} if support else {})}))
    one.ask("Is it?")
    return one


def weights(one, selector):
    return one.page.locator(selector).evaluate_all("all => all.map(e => Number(e.style.getPropertyValue('--w')))")


def test_pointing_at_a_sentence_lights_its_passages(visit):
    one = marked(visit)
    assert one.text(".written") == "Yes 🙂. It is so."
    assert one.page.locator(".sentence").all_inner_texts() == ["Yes 🙂.", " It is so."]
    assert one.page.locator("aside .share").all_text_contents() == ["50 %", "50 %"]
    one.page.locator(".sentence").first.hover()
    assert weights(one, "aside li") == [1, pytest.approx(1 / 9, abs=1e-3)]
    assert one.page.locator("aside .share").all_text_contents() == ["90 %", "10 %"]
    assert one.text(".reading").startswith("Attention of this sentence: source 1 (90 %), 2 (10 %).")
    one.page.mouse.move(0, 0)
    assert weights(one, "aside li") == [0, 0] and one.text(".reading") == ""
    assert one.page.locator("aside .share").all_text_contents() == ["50 %", "50 %"]


def test_pointing_at_a_passage_lights_its_tokens(visit):
    one = marked(visit)
    one.page.locator("aside li").last.hover()
    assert weights(one, ".token") == [0.125, 1, 0.75]
    one.page.mouse.move(0, 0)
    assert weights(one, ".token") == [0, 0, 0]


def test_what_depends_on_the_documents_is_underlined(visit):
    one = marked(visit)
    assert one.page.locator(".written .leans").all_inner_texts() == ["It is"] and one.page.locator(".legend").is_visible()
    one.page.locator(".written .leans").hover()
    assert one.text(".reading").endswith("“It is”: 61 % likely, 1.8 % without the documents.")


def judged(start, end, support, passage):
    return {"index": 0, "answer_start": start, "answer_end": end, "support": support, "chunk": None if support is None else 0, "passage": passage}


def test_sentences_without_support_are_marked(visit):
    one = marked(visit, [judged(0, 6, 0.75, 2), judged(7, 16, 0.01, 1)])
    assert one.page.locator(".sentence").all_text_contents() == ["Yes 🙂.", " It is so."]
    sign = one.page.locator(".written .unsupported")
    assert sign.count() == 1 and sign.get_attribute("aria-label") == "Hardly supported by the sources"
    assert one.page.locator(".sentence").last.locator(".unsupported").is_visible()
    assert one.page.locator(".unsupported-legend").is_visible() and one.text(".written") == "Yes 🙂. It is so."
    one.page.locator(".sentence").first.hover()
    assert "The sources make all parts of this sentence 4.0 times as likely, or more, most by source 2." in one.text(".reading")
    one.page.locator(".sentence").last.hover()
    assert "hardly support this sentence" in one.text(".reading")
    assert Axe().run(one.page).response["violations"] == []


def test_the_servers_sentences_are_the_pages(visit):
    """Its borders are kept, and what read nothing has no mark."""
    one = marked(visit, [judged(0, 16, None, None)])
    assert one.page.locator(".sentence").all_text_contents() == ["Yes 🙂. It is so."]
    assert one.page.locator(".written .unsupported").count() == 0 and one.page.locator(".unsupported-legend").is_hidden()
    one.page.locator(".sentence").hover()
    assert "Nothing was read for this sentence." in one.text(".reading")


def test_the_server_judges_what_it_writes(visit):
    one = visit()
    one.set(seed=1, temperature=0)
    one.ask(QUESTION)
    one.page.locator(".sentence").first.hover()
    assert re.search("times as likely, or more, most by source [1-9]|hardly support", one.text(".reading"))


def test_arrow_keys_go_from_sentence_to_sentence(visit):
    one = marked(visit)
    one.page.locator(".sentence").first.focus()
    one.page.keyboard.press("ArrowRight")
    assert one.page.locator(".sentence.on").inner_text() == " It is so."
    assert one.text(".reading") == ("Attention of this sentence: source 2 (70 %), 1 (30 %). "
                                    "Much less likely without the documents: It is.")
    assert weights(one, "aside li") == [pytest.approx(3 / 7, abs=1e-3), 1]
    one.page.keyboard.press("ArrowRight")
    one.page.keyboard.press("ArrowLeft")
    assert one.page.locator(".sentence.on").inner_text() == "Yes 🙂."


# By keyboard, on a phone, for a screen reader.


def test_everything_is_reached_by_keyboard(visit):
    one = visit()
    assert one.page.evaluate("document.activeElement.id") == "prompt"
    one.page.keyboard.type("A")
    one.page.keyboard.press("Shift+Enter")
    one.page.keyboard.type("bridge")
    one.page.keyboard.press("Enter")
    one.wait()
    assert one.bodies()[0]["prompt"] == "A\nbridge"
    one.page.focus(".skip")
    reached = ["skip"]
    for _ in range(40):
        one.page.keyboard.press("Tab")
        reached.append(one.page.evaluate("(e => e.id || e.name || e.className || e.parentElement.tagName)(document.activeElement)"))
        style = one.page.evaluate("(e => { const s = getComputedStyle(e), f = getComputedStyle(e.closest('.field, label') ?? e), "
                                  "n = e.nextElementSibling && getComputedStyle(e.nextElementSibling); "
                                  "return [s.outlineStyle, n?.outlineStyle, f.boxShadow] })(document.activeElement)")
        assert "solid" in style[:2] or style[2] != "none", reached
        if reached[-1] == "read":
            break
    assert reached[:7] == ["skip", "open-shelf", "open-documents", "open-clients", "fresh", "theme", "open-settings"]
    assert "unfold" in reached and "open-source" in reached and reached[-4:] == ["prompt", "send", "mode", "read"]


def test_the_dialog_closes_by_escape_and_leaves_the_stream(visit):
    one = visit()
    one.page.click("#open-settings")
    one.page.keyboard.press("Escape")
    assert one.page.locator("#settings").is_hidden()


@pytest.mark.parametrize("width", [360, 768])
def test_narrow_screens_scroll_only_down(visit, width):
    one = visit(viewport={"width": width, "height": 740})
    one.ask(QUESTION, "both")
    assert one.page.evaluate("document.documentElement.scrollWidth") == width
    text, sources = (one.page.locator(s).last.bounding_box() for s in (".answer", "aside"))
    assert sources["y"] >= text["y"] + text["height"]
    one.page.click("#open-settings")
    box = one.page.locator("#settings").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= width


def test_whole_sentences_are_read_out(visit):
    one = marked(visit)
    assert one.page.locator("#spoken").get_attribute("aria-live") == "polite"
    assert one.text("#spoken") == "Yes 🙂. It is so."


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(visit, scheme):
    one = visit(color_scheme=scheme)
    one.ask(QUESTION, "both")
    one.page.locator("aside li .unfold").first.click()
    found = Axe().run(one.page).response["violations"]
    one.page.click("#open-settings")
    found += Axe().run(one.page).response["violations"]
    assert found == []


def test_light_and_dark(visit):
    one = visit(color_scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = one.page.evaluate(paper)
    one.page.get_by_role("button", name="Light").click()
    light = one.page.evaluate(paper)
    assert light != dark
    one.page.reload()
    assert one.page.evaluate(paper) == light
    one.page.wait_for_selector("#theme:text('Dark')")


def test_reduced_motion_is_respected(visit):
    one = visit(reduced_motion="reduce")
    one.ask(QUESTION)
    assert one.page.evaluate("document.getAnimations().length") == 0
    durations = one.page.locator("*").evaluate_all("all => all.map(e => getComputedStyle(e).transitionDuration)")
    assert set(durations) == {"0s"}


def test_it_works_below_a_path(visit, server):
    """As behind a proxy that hands /below/ on to the server."""
    one = visit.hear()
    one.page.route(f"{server.url}/below/**", lambda route: route.fulfill(
        response=route.fetch(url=route.request.url.replace("/below/", "/"))))
    one.open("/below/")
    one.ask(QUESTION)
    assert one.text(".written").strip()
    assert all(request.url.startswith(f"{server.url}/below/") for request in one.requests)


def test_nothing_is_loaded_from_elsewhere(visit, server):
    one = visit()
    one.ask(QUESTION)
    assert {request.url[:len(server.url)] for request in one.requests} == {server.url}
    assert one.page.evaluate("performance.getEntriesByType('resource').filter(e => e.name.includes('/page/'))"
                             ".reduce((sum, e) => sum + e.decodedBodySize, 0)") < 220000  # of them the library marked: 64 kB
    assert not any("katex" in request.url for request in one.requests)
