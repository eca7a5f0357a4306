"""Conversations that the browser keeps: after a reload, in a list, in files, in two tabs, and where it keeps none."""
import json

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import EVIL

# Runs a function of the database's stores in the page, as another program would.
DATABASE = """async (work) => {
  const place = new URL(".", location).pathname;
  const database = await new Promise((resolve) => {
    const request = indexedDB.open(`retro-conversations ${place}`);
    request.onsuccess = () => resolve(request.result);
  });
  const transaction = database.transaction(["conversations", "turns", "sources"], "readwrite");
  const all = {};
  for (const [name, records] of Object.entries(work)) {
    for (const record of records) transaction.objectStore(name).put(record);
  }
  for (const name of transaction.objectStoreNames) {
    transaction.objectStore(name).getAll().onsuccess = (event) => { all[name] = event.target.result; };
  }
  await new Promise((resolve) => { transaction.oncomplete = resolve; });
  database.close();
  return all;
}"""
REFUSED = "Object.defineProperty(window, 'indexedDB', { get() { throw new DOMException('no', 'SecurityError'); } });"


def database(one, **records):
    return one.page.evaluate(DATABASE, records)


def head(name, **members):
    settings = {"model": "none", "mode": "chat", "read": "on", "chosen": {}}
    return {"id": name, "title": f"Title {name}", "leaf": "", "made": 1, "changed": 1, "bytes": 100, "size": 1,
            "settings": settings, **members}


def turn(conversation, name, parent="", question="Asked", text="Said", **members):
    answers = [{"reads": True, "text": text, "thoughts": "", "measured": "", "finish": "stop"}]
    return {"conversation": conversation, "id": name, "parent": parent, "made": 1, "mode": "chat", "model": "m",
            "question": question, "pictures": [], "answers": answers, "bytes": 100, **members}


def wait_kept(one, size):
    """The last turn is kept with its text."""
    one.until("""(async () => {
      const request = indexedDB.open(`retro-conversations ${new URL(".", location).pathname}`);
      const database = await new Promise((resolve) => { request.onsuccess = () => resolve(request.result); });
      const turns = database.transaction("turns").objectStore("turns").getAll();
      await new Promise((resolve) => { turns.onsuccess = resolve; });
      database.close();
      return turns.result.filter(({ answers }) => answers.every(({ text }) => text)).length === %d;
    })()""" % size)


def reload(one):
    one.page.reload()
    one.until("document.querySelector('article') !== null")


def open_shelf(one):
    if one.page.locator("#shelf").is_hidden():
        one.page.click("#open-shelf")


def names(one):
    return one.page.locator("#shelf .name").all_text_contents()


def wait_names(one, *expected):
    one.until("JSON.stringify([...document.querySelectorAll('#shelf .name')].map((e) => e.textContent)) === "
              + json.dumps(json.dumps(expected, separators=(",", ":"), ensure_ascii=False)))


def deed(one, title, name):
    one.page.get_by_role("button", name=f"More for {title}", exact=True).click()
    one.page.locator("#shelf li", has_text=title).locator(name).click()


@pytest.fixture
def one(visit, chat_server):
    return visit(chat_server)


def test_a_conversation_survives_a_reload_with_its_sources(one):
    one.set(system="", max_tokens=40)
    one.ask("cite the bridge")
    one.ask("Hello there")
    wait_kept(one, 2)
    passages = one.page.locator("article").first.locator("aside .passage").all_text_contents()
    measured = one.page.locator(".measured").all_text_contents()
    reload(one)
    assert one.page.locator(".question").all_text_contents() == ["cite the bridge", "Hello there"]
    one.until("document.querySelector('.cite') !== null")
    first = one.page.locator("article").first
    assert first.locator("aside .passage").all_text_contents() == passages
    assert one.page.locator(".measured").all_text_contents() == measured
    first.locator(".cite").first.click()
    assert "open" in first.locator("aside li").first.get_attribute("class")
    one.ask("And now?")
    assert [m["content"] for m in one.bodies()[-1]["messages"]][::2] == ["cite the bridge", "Hello there", "And now?"]
    assert one.bodies()[-1]["max_tokens"] == 40


def test_attention_and_comparisons_are_kept(visit):
    one = visit()
    one.set(seed=1, temperature=0)
    one.ask("open() returns a file descriptor, a small", "both")
    wait_kept(one, 1)
    shares, leans = one.page.locator("aside .share").all_text_contents(), one.page.locator(".leans").count()
    texts = one.page.locator(".text").all_text_contents()
    reload(one)
    one.until("document.querySelector('.token') !== null")
    assert one.page.locator("aside .share").all_text_contents() == shares
    assert one.page.locator(".leans").count() == leans and one.page.locator(".text").all_text_contents() == texts
    one.page.locator(".sentence").first.hover()
    assert one.text(".reading") == "" and "Attention of this sentence" in one.page.locator(".reading").first.text_content()


def test_the_list_opens_searches_and_renames(one):
    one.ask("First of all")
    one.page.click("#fresh")
    one.ask("think of it")
    open_shelf(one)
    wait_names(one, "think of it", "First of all")
    one.page.fill("#shelf-search", "first OF")
    wait_names(one, "First of all")
    one.page.fill("#shelf-search", "the answer")  # of the other's answer
    wait_names(one, "think of it")
    one.page.fill("#shelf-search", "nowhere")
    wait_names(one)
    assert one.text("#shelf-none") == "None has these words."
    one.page.fill("#shelf-search", "")
    wait_names(one, "think of it", "First of all")
    one.page.locator("#shelf .name", has_text="First").click()
    one.until("document.querySelector('.question')?.textContent === 'First of all'")
    deed(one, "First of all", ".rename")
    one.page.keyboard.type(EVIL)
    one.page.keyboard.press("Enter")
    wait_names(one, "think of it", EVIL)
    assert one.page.locator("#shelf img").count() == 0
    one.page.wait_for_selector(f"#shelf .name[aria-current=true]:text({json.dumps(EVIL)})")


def test_deleting_is_undone(one):
    one.ask("Hello there")
    wait_kept(one, 1)
    open_shelf(one)
    deed(one, "Hello there", ".delete")
    wait_names(one)
    assert one.page.locator("article").count() == 0 and one.text("#shelf-told") == "“Hello there” is deleted."
    assert all(records == [] for records in database(one).values())
    one.page.keyboard.press("Enter")  # the focus is on Undo
    wait_names(one, "Hello there")
    assert one.text("#shelf-told") == "“Hello there” is back."
    one.page.click("#shelf .name")
    one.until("document.querySelector('.written')?.textContent.startsWith('Hello, world!')")


def test_exports_as_markdown_and_json(one):
    one.page.evaluate("sessionStorage['retro-settings'] = JSON.stringify({ key: 'retro-secret' })")
    one.page.reload()
    one.open()
    one.ask("cite the bridge")
    wait_kept(one, 1)
    assert "retro-secret" not in json.dumps(database(one))
    open_shelf(one)
    one.page.get_by_role("button", name="More for cite the bridge").click()
    with one.page.expect_download() as markdown:
        one.page.click("#shelf .markdown")
    with one.page.expect_download() as whole:
        one.page.click("#shelf .json")
    assert markdown.value.suggested_filename == "cite-the-bridge.md"
    text = markdown.value.path().read_text()
    assert text.startswith("# cite the bridge\n\n20") and "> cite the bridge\n\nÖl [1] comes" in text
    assert "### Sources\n\n1. " in text and "\n   > " in text
    value = json.loads(whole.value.path().read_text())
    assert value["turns"][0]["answers"][0]["text"].startswith("Öl") and value["turns"][0]["retrieval"][0]["neighbors"]
    assert value["turns"][0]["marks"][0]["citations"] and "retro-secret" not in text + json.dumps(value)


@pytest.mark.parametrize("told, words", [
    ({"query": f"How is the {EVIL} bridge?"}, f"Sought by: How is the {EVIL} bridge?"),
    ({"query_problem": "the model failed"}, "The question was not rewritten: the model failed")])
def test_a_rewritten_question_stands_above_the_sources(one, told, words):
    events = [{"choices": [{"index": 0, "delta": {}}], "retrieval": [{"index": 0, "chunk": 0, "position": 0, **told, "neighbors": []}]},
              {"choices": [{"index": 0, "delta": {"content": "Yes."}, "finish_reason": "stop"}]}]
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    one.page.route("**/v1/chat/completions", lambda route: route.fulfill(body=body, headers={"Content-Type": "text/event-stream"}))
    one.ask("And the second one?")
    assert one.text("aside .sought") == words
    wait_kept(one, 1)
    reload(one)
    one.until("document.querySelector('aside .sought').hidden === false")
    assert one.text("aside .sought") == words
    open_shelf(one)
    one.page.get_by_role("button", name="More for And the second one?").click()
    with one.page.expect_download() as markdown:
        one.page.click("#shelf .markdown")
    assert f"### Sources\n\n{words}" in markdown.value.path().read_text()


def test_two_tabs_keep_both_their_turns(one):
    one.ask("Hello there")
    wait_kept(one, 1)
    other = one.context.new_page()
    other.goto(one.server.url)
    other.click("#open-shelf")
    other.click("#shelf .name")
    for page, text in ((one.page, "From the first"), (other, "From the second")):
        page.fill("#prompt", text)
        page.press("#prompt", "Enter")
        page.wait_for_selector(".question:text('From')")
    wait_kept(one, 3)
    kept = database(one)
    assert sorted(t["question"] for t in kept["turns"]) == ["From the first", "From the second", "Hello there"]
    (head,) = kept["conversations"]
    assert head["size"] == 3 and head["bytes"] == sum(t["bytes"] for t in kept["turns"])


def test_what_another_tab_deleted_comes_back_with_the_next_turn(one):
    one.ask("Hello there")
    wait_kept(one, 1)
    other = one.context.new_page()
    other.goto(one.server.url)
    other.click("#open-shelf")
    other.click("#shelf .more")
    other.click("#shelf .delete")
    other.wait_for_selector("#shelf-none:visible")
    one.ask("Still here?")
    wait_kept(one, 2)


def test_the_oldest_leave(one):
    database(one, conversations=[head(f"{i}", changed=i) for i in range(200)], turns=[turn("0", "a")])
    one.ask("Hello there")
    wait_kept(one, 1)
    kept = database(one)
    ids = {h["id"] for h in kept["conversations"]}
    assert len(ids) == 200 and "0" not in ids and "1" in ids and [t["conversation"] for t in kept["turns"]] != ["0"]
    database(one, conversations=[head("5", bytes=60_000_000, changed=5), head("6", bytes=60_000_000, changed=6)])
    one.ask("More")
    wait_kept(one, 2)
    assert {"5", "6"} & {h["id"] for h in database(one)["conversations"]} == {"6"}
    open_shelf(one)
    one.until("document.querySelector('#shelf-note').textContent.startsWith('195 of 200, 60.0 of 100.0 MB')")


def test_a_conversation_at_the_limit_says_so(one):
    one.ask("Hello there")
    wait_kept(one, 1)
    (mine,) = database(one)["conversations"]
    database(one, conversations=[{**mine, "bytes": 99_999_999}])
    one.ask("More")
    one.until("document.querySelector('#unkept').textContent.startsWith('This conversation has reached 100 MB')")
    assert one.text(".written").startswith("Hello, world!")


def test_a_browser_that_keeps_nothing_says_so_and_works(visit, chat_server):
    one = visit.hear(chat_server)
    one.page.add_init_script(REFUSED)
    one.open()
    one.ask("Hello there")
    one.until("document.querySelector('#unkept').textContent.startsWith('This browser keeps no conversations')")
    one.ask("And now?")
    assert [m["content"] for m in one.bodies()[1]["messages"]][1::2] == ["Hello there", "And now?"]
    open_shelf(one)
    assert one.text("#shelf-note").startswith("This browser keeps no conversations")
    one.page.click("#close-shelf")
    one.page.click("#fresh")
    assert one.page.locator("article").count() == 0


def test_what_is_half_written_is_kept_when_the_page_is_left(visit, chat_config, start):
    one = visit(start(chat_config, RETRO_CPU="generic"))
    one.set(max_tokens=1500)
    one.page.fill("#prompt", "count")
    one.page.press("#prompt", "Enter")
    one.until("document.querySelector('.written')?.textContent.startsWith('abc')")
    reload(one)
    assert one.text(".question") == "count" and one.page.locator(".busy").count() == 0


def test_what_is_deleted_while_it_is_written_stays_deleted(visit, chat_config, start):
    one = visit(start(chat_config, RETRO_CPU="generic"))
    one.set(max_tokens=1500)
    one.page.fill("#prompt", "count")
    one.page.press("#prompt", "Enter")
    one.until("document.querySelector('.written')?.textContent.startsWith('abc')")
    open_shelf(one)
    deed(one, "count", ".delete")
    one.wait()
    wait_names(one)
    assert database(one)["conversations"] == []
    assert one.text("#shelf-told") == "“count” is deleted."


def test_hundreds_of_turns_open_and_go_on(one):
    turns = [turn("long", f"t{i:04}", f"t{i - 1:04}" if i else "", f"Question {i}", "Words of an answer. " * 40, made=i)
             for i in range(400)]
    found = [{"index": 0, "chunk": 0, "position": 0, "neighbors": [
        {"document": "a.md", "title": "A", "start": 0, "end": 9, "similarity": 0.8, "text": "of a"}]}]
    kept = [{"conversation": "long", "id": t["id"], "retrieval": found, "marks": [{}]} for t in turns]
    database(one, conversations=[head("long", leaf="t0399", size=400)], turns=turns, sources=kept)
    open_shelf(one)
    one.page.click("#shelf .name")
    one.until("document.querySelectorAll('article').length === 400")
    one.until("document.querySelector('article:last-child aside .title')?.textContent === 'A'")
    one.until("document.querySelector('article:last-child').getBoundingClientRect().top < innerHeight / 2")
    assert one.page.locator("article aside li").count() < 100  # those that are far away are not read
    one.page.locator("article").first.scroll_into_view_if_needed()
    one.until("document.querySelector('article aside .title')?.textContent === 'A'")


# How much an answer changes in the page: nodes that come and go, from the question to its end.
COUNT = """() => {
  window.counted = 0;
  new MutationObserver((records) => {
    for (const { addedNodes, removedNodes } of records) window.counted += addedNodes.length + removedNodes.length;
  }).observe(document.body, { childList: true, subtree: true });
}"""


def count_work(one, n):
    """A conversation of n turns goes on by one."""
    turns = [turn("long", f"t{i:04}", f"t{i - 1:04}" if i else "", f"Question {i}", f"Some *words* of answer {i}.", made=i)
             for i in range(n)]
    kept = [{"conversation": "long", "id": t["id"], "retrieval": [], "marks": [{}]} for t in turns]
    database(one, conversations=[head("long", leaf=turns[-1]["id"], size=n)], turns=turns, sources=kept)
    one.page.reload()
    one.open()
    open_shelf(one)
    one.page.click("#shelf .name")
    one.until(f"document.querySelectorAll('article').length === {n}")
    one.until("document.querySelector('article:last-child .written em') !== null")
    drawn = one.page.locator(".written em").count()
    piece = {"choices": [{"index": 0, "delta": {"content": "An *answer*."}, "finish_reason": "stop"}]}
    one.page.route("**/v1/chat/completions", lambda route: route.fulfill(
        body=f"data: {json.dumps(piece)}\n\ndata: [DONE]\n\n", headers={"Content-Type": "text/event-stream"}))
    one.page.evaluate(COUNT)
    one.ask("One more")
    one.until(f"document.querySelectorAll('article').length === {n + 1}")
    return drawn, one.page.evaluate("window.counted")


def test_a_thousand_turns_take_no_more_work_than_ten(visit, chat_server):
    """Markdown is drawn of what is near the screen, and an answer changes what is its own."""
    _, few = count_work(visit(chat_server), 10)
    drawn, many = count_work(visit(chat_server), 1000)
    assert drawn < 100 and many <= few + 50


@pytest.mark.parametrize("width", [360, 1280, 1600])
def test_the_list_fits_and_closes_by_escape(visit, chat_server, width):
    one = visit(chat_server, viewport={"width": width, "height": 740})
    assert one.page.locator("#shelf").is_visible() == (width == 1600)
    one.ask("Hello there")
    open_shelf(one)
    wait_names(one, "Hello there")
    assert one.page.evaluate("document.documentElement.scrollWidth") == width
    box, text = one.page.locator("#shelf").bounding_box(), one.page.locator(".text").bounding_box()
    assert box["width"] == 360 if width == 360 else box["x"] + box["width"] < text["x"]
    one.page.focus("#shelf-search")
    one.page.keyboard.press("Escape")
    assert one.page.locator("#shelf").is_hidden() and one.page.evaluate("document.activeElement.id") == "open-shelf"
    open_shelf(one)
    one.page.click("#shelf .name")
    one.until(f"document.querySelector('#shelf').hidden === {json.dumps(width == 360)}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_nothing(visit, chat_server, scheme, width):
    one = visit(chat_server, color_scheme=scheme, viewport={"width": width, "height": 740})
    one.ask("cite the bridge")
    open_shelf(one)
    one.page.click("#shelf .more")
    assert Axe().run(one.page).response["violations"] == []
