"""Markdown of answers: what it looks like, what it may not do, and that marks of sentences and sources stay at their
words. The answers are written by the tests in the server's place."""
import json

import pytest
from axe_playwright_python.sync_playwright import Axe


def answer(one, text, pieces=1, **last):
    """Streams the text in so many pieces, then what `last` says of it."""
    size = -(-len(text) // pieces)
    events = [{"choices": [{"index": 0, "delta": {"content": text[i:i + size]}, "finish_reason": None}]}
              for i in range(0, len(text), size)]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], **last})
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    one.page.route("**/v1/chat/completions", lambda route: route.fulfill(
        body=body, headers={"Content-Type": "text/event-stream"}))
    one.ask("Hello")


def drawn(one):
    """The answer's elements without attributes."""
    return one.page.locator(".written").last.evaluate("""(root) => {
      const write = (node) => {
        if (node.nodeType === Node.TEXT_NODE) return node.data;
        const inner = [...node.childNodes].map(write).join("");
        const name = node.localName;
        return ["span", "button"].includes(name) ? inner : `<${name}>${inner}</${name}>`;
      };
      return [...root.childNodes].map(write).join("");
    }""")


@pytest.fixture
def one(visit, chat_server):
    return visit(chat_server)


BLOCKS = """# Rails

Two *fast* **and** `safe` ways, ~~three~~.

1. first
2. second
   - inner

> quoted

```c
int x = 1 < 2;
```

| left | right |
|:-----|------:|
| a    | 1     |
"""
DRAWN = ("<h3>Rails</h3><p>Two <em>fast</em> <strong>and</strong> <code>safe</code> ways, <del>three</del>.</p>"
         "<ol><li>first</li><li>second<ul><li>inner</li></ul></li></ol><blockquote><p>quoted</p></blockquote>"
         "<div>cCopy code<div><pre><code>int x = 1 < 2;</code></pre></div></div>"
         "<div><table><thead><tr><th>left</th><th>right</th></tr></thead><tbody><tr><td>a</td><td>1</td></tr></tbody>"
         "</table></div>")


@pytest.mark.parametrize("pieces", [1, 40])
def test_blocks(one, pieces):
    answer(one, BLOCKS, pieces)
    assert drawn(one) == DRAWN
    assert Axe().run(one.page).response["violations"] == []


def test_blocks_are_drawn_once_while_they_come(one):
    """Each piece draws the block at the end, however long the answer is."""
    counts = one.page.evaluate("""async () => {
      const { Growing } = await import("./page/markdown.js");
      const root = document.createElement("div"), growing = new Growing(root), counts = [];
      let text = "", seen = 0;
      const watch = new MutationObserver(() => {});
      watch.observe(root, { childList: true, subtree: true });
      for (let i = 0; i < 400; i++) {
        text += `Paragraph *${i}* of a long answer.\\n\\n`;
        growing.draw(text);
        const added = watch.takeRecords().reduce((n, record) => n + record.addedNodes.length, 0);
        counts.push(added);
      }
      return [Math.max(...counts.slice(0, 20)), Math.max(...counts.slice(-20)), root.querySelectorAll("p").length];
    }""")
    assert counts[1] <= counts[0] and counts[2] == 400


def test_code_is_copied(visit, chat_server):
    one = visit(chat_server, permissions=["clipboard-read", "clipboard-write"])
    answer(one, BLOCKS)
    one.page.get_by_role("button", name="Copy code").click()
    one.until("document.querySelector('.reading').textContent === 'Copied.'")
    assert one.page.evaluate("navigator.clipboard.readText()") == "int x = 1 < 2;"
    one.page.click(".copy")
    one.until("navigator.clipboard.readText().then((text) => text.startsWith('# Rails'))")
    assert one.page.evaluate("navigator.clipboard.readText()") == BLOCKS


def test_formulas(one):
    answer(one, "The area is $\\pi r^2$, or \\(a+b\\).\n\n$$\n\\frac{1}{2}\n$$\n\nIt costs $5 and $6, and $\\nonsense{$ stays.")
    one.until("document.querySelectorAll('.written math').length === 3")
    notes = one.page.locator(".written annotation").all_text_contents()
    assert [note.strip() for note in notes] == ["\\pi r^2", "a+b", "\\frac{1}{2}"]
    assert one.page.locator(".written math[display=block]").count() == 1
    assert "It costs $5 and $6, and $\\nonsense{$ stays." in one.text(".written")
    assert Axe().run(one.page).response["violations"] == []


HOSTILE = [
    "<img src=x onerror=alert(1)>", "<script>alert(1)</script>", "a <b onclick=alert(1)>b</b> c",
    "![p](http://127.0.0.1:9/p.png)", "[x](javascript:alert(1))", "[x](JaVaScRiPt:alert(1))", "[x](data:text/html,y)",
    "[x](/v1/documents)", "[x](  javascript:alert(1))", "<javascript:alert(1)>", "<style>*{display:none}</style>",
    "<iframe src=//127.0.0.1:9></iframe>", "[1]: http://127.0.0.1:9/hidden", "<form action=//127.0.0.1:9><input></form>",
    "```\n</code><img src=x>\n```", "| <img src=x> |\n|---|\n| <svg onload=alert(1)> |",
    "$\\href{javascript:alert(1)}{x}$", "$\\includegraphics{http://127.0.0.1:9/p.png}$", "$\\def\\a{\\a\\a}\\a$",
    "&lt;img src=x&gt; &#60;b&#62;", "<!-- <img src=x> -->", "<https://a.example/\"onmouseover=alert(1)//>",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_markup_of_a_model_is_the_pages(one, text):
    before = len(one.requests)
    answer(one, f"Before.\n\n{text}\n\nAfter.")
    one.until("!document.querySelector('.formula') || document.querySelector('.formula.unknown, .formula math')")
    assert one.page.locator(".written :is(img, script, style, iframe, form, input, svg, b, object, embed, link)").count() == 0
    for link in one.page.locator(".written a").all():
        assert link.get_attribute("href").startswith(("https://", "http://", "mailto:"))
        assert set(link.evaluate("e => e.getAttributeNames()")) <= {"href", "target", "rel"}
    assert one.page.locator(".written *").evaluate_all(
        "all => all.every((e) => e.getAttributeNames().every((name) => !name.startsWith('on')))")
    shown = one.text(".written")
    assert shown.startswith("Before.") and shown.endswith("After.")
    if text.startswith(("<", "[", "!", "a ")) and "https" not in text:
        assert text in shown
    later = [request.url for request in one.requests[before:]]
    assert all(url.startswith(one.server.url) for url in later)


def test_links_lead_away(one):
    answer(one, "See [the *manual*](https://manual.example/a?b=1&c=2) or https://plain.example.")
    links = one.page.locator(".written a")
    assert links.evaluate_all("all => all.map((a) => a.href)") == [
        "https://manual.example/a?b=1&c=2", "https://plain.example/"]
    assert links.first.get_attribute("rel") == "noopener noreferrer nofollow" and links.first.get_attribute("target") == "_blank"


@pytest.mark.parametrize("text", ["> " * 20000 + "deep", "a" + "*" * 30000, "[" * 30000, "x" * 250000, "`" * 20001, "- " * 3000 + "x"],
                         ids=["quotes", "stars", "brackets", "long", "ticks", "lists"])
def test_what_cannot_be_cut_is_shown_as_it_is(one, text):
    answer(one, text)
    assert len(one.text(".written").strip()) > 0


MARKED = "# A *title* [1]\n\n- First **bold words** stand. Second &amp; `x < y` [2]\n  goes on here.\n\n```\n\tint x;\n```\n\nThe \\*end\\*."


def test_marks_stand_at_their_words(one):
    """Each word of the source is a token, each line a sentence: what is marked is the word itself."""
    words, at = [], 0
    for word in MARKED.split():
        start = MARKED.index(word, at)
        at = start + len(word)
        words.append({"start": start, "end": at, "word": word})
    neighbors = [{"id": f"i{n}", "number": n, "document": f"d{n}.md", "title": "", "start": 0, "end": 9, "page": None,
                  "line": 1, "heading": [], "similarity": 0.5, "text": "Some text", "boxes": []} for n in (1, 2)]
    citations = [{**neighbors[n - 1], "index": 0, "answer_start": MARKED.index(f"[{n}]"), "answer_end": MARKED.index(f"[{n}]") + 3}
                 for n in (1, 2)]
    tokens = [{"answer_start": one["start"], "answer_end": one["end"], "shares": [0.5, 0.1]} for one in words]
    answer(one, MARKED, retrieval=[{"chunk": 0, "position": 0, "neighbors": neighbors}], citations=citations,
           attention=[{"index": 0, "chunk": 0, "shares": [0.5, 0.1], "tokens": tokens}])
    assert one.page.locator(".cite").all_text_contents() == ["[1]", "[2]"]
    shown = one.page.locator(".token").all_text_contents()
    plain = [word for word in "A title [1] First bold words stand. Second &amp; x < y [2] goes on here. int x; The *end*.".split()]
    assert " ".join("".join(f"{piece} " for piece in shown).split()) in (" ".join(plain), " ".join(plain).replace("*end*.", "* end * ."))
    one.page.locator(".cite").last.click()
    assert one.page.locator("aside li.open .number").text_content() == "2"
    assert one.text("aside li.open .place").count("d2.md") == 0 and one.text("aside li.open .title") == "d2.md"
    one.page.locator("aside li").first.hover()
    weights = one.page.locator(".token").evaluate_all("all => all.map((e) => e.style.getPropertyValue('--w'))")
    assert set(weights) == {"1.000"}
