"""Pictures on the page: added from a file, the clipboard or by a drop, shown in the chat and among the sources."""
import base64
import json
import subprocess

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import BUILD, ROOT

SEER = ROOT / "tests/golden/llava_served"
CLIP = ROOT / "tests/golden/clip_served"
URL = "data:image/png;base64," + base64.b64encode((SEER / "wide.png").read_bytes()).decode()
# Gives the page a file as a browser does, by the clipboard or by a drop.
GIVE = """([kind, name, type, base64]) => {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)), data = new DataTransfer();
  data.items.add(new File([bytes], name, { type }));
  const target = document.querySelector("#prompt");
  const more = kind === "paste" ? { clipboardData: data } : { dataTransfer: data };
  const event = kind === "paste" ? new ClipboardEvent("paste", { bubbles: true, cancelable: true, ...more })
    : new DragEvent("drop", { bubbles: true, cancelable: true, ...more });
  target.dispatchEvent(event);
  return event.defaultPrevented;
}"""


@pytest.fixture(scope="module")
def seer(folder, start):
    """A model that sees, and a collection of pictures."""
    config, out = folder / "seer.json", folder / "gallery"
    config.write_text(json.dumps({"model": {"path": str(SEER), "name": "seer"},
                                  "retrieval": {"collection": str(out), "embedder": str(CLIP), "mode": "prompt"},
                                  "server": {"port": 0, "max_context": 400}}))
    command = [BUILD / "retro-index", "build", "--pictures", "--out", out, "--config", config, SEER / "wide.png", SEER / "tall.png"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return start(config)


@pytest.fixture()
def one(visit, seer):
    return visit(seer)


def give(one, kind, name="wide.png", media="image/png"):
    data = base64.b64encode((SEER / "wide.png").read_bytes()).decode()
    return one.page.evaluate(GIVE, [kind, name, media, data])


def attached(one, n):
    one.until(f"document.querySelectorAll('#pictures img').length === {n}")


def ask(one, text):
    one.set(max_tokens=8)
    one.ask(text, "off")
    return [message for message in one.bodies()[-1]["messages"] if message["role"] != "system"]


def test_a_picture_from_a_file(one):
    one.page.set_input_files("#files", SEER / "wide.png")
    attached(one, 1)
    assert one.page.locator("#pictures img").get_attribute("alt") == "wide.png"
    assert one.text("#attached") == "wide.png is added."
    (message,) = ask(one, "What is this?")
    assert message["content"] == [{"type": "image_url", "image_url": {"url": URL}}, {"type": "text", "text": "What is this?"}]
    assert one.page.locator("#pictures").is_hidden() and len(one.text(".written")) > 0
    shown = one.page.locator("article .seen img")
    assert shown.count() == 1 and shown.evaluate("image => image.naturalWidth") == 61


def test_the_next_question_brings_it_again(one):
    give(one, "paste")
    attached(one, 1)
    ask(one, "First?")
    first, answer, second = ask(one, "Second?")
    assert first["content"][0]["image_url"]["url"] == URL and second["content"] == "Second?"


@pytest.mark.parametrize("kind", ["paste", "drop"])
def test_pasted_and_dropped(one, kind):
    assert give(one, kind) and give(one, kind, "again.png")
    attached(one, 2)


def test_other_files_are_named(one):
    give(one, "drop", "notes.pdf", "application/pdf")
    one.until("document.querySelector('#attached').textContent !== ''")
    assert one.text("#attached") == "notes.pdf is no PNG, JPEG, WebP or GIF." and one.page.locator("#pictures").is_hidden()


def test_one_is_removed_by_keyboard(one):
    give(one, "paste")
    attached(one, 1)
    remove = one.page.get_by_role("button", name="Remove wide.png")
    remove.focus()
    one.page.keyboard.press("Enter")
    attached(one, 0)
    assert one.text("#attached") == "wide.png is removed."
    assert one.page.evaluate("document.activeElement.id") == "prompt"
    (message,) = ask(one, "Nothing to see?")
    assert message["content"] == "Nothing to see?"


def test_the_button_is_reached_by_keyboard(one):
    one.page.focus("#prompt")
    with one.page.expect_file_chooser() as chosen:
        one.page.get_by_role("button", name="Add a picture").focus()
        one.page.keyboard.press("Enter")
    chosen.value.set_files([SEER / "wide.png", SEER / "tall.png"])
    attached(one, 2)


def test_sources_show_their_picture(one):
    one.set(max_tokens=4, k=2, min_similarity=-1)
    one.ask("What is wide?")
    one.until("[...document.querySelectorAll('aside li img')].filter((image) => image.naturalWidth > 0).length === 2")
    images = one.page.locator("aside li img")
    assert {images.nth(i).get_attribute("alt") for i in range(2)} == {"Picture: wide", "Picture: tall"}


def test_axe_finds_nothing(one):
    give(one, "paste")
    attached(one, 1)
    assert Axe().run(one.page).response["violations"] == []
    ask(one, "What is this?")
    assert Axe().run(one.page).response["violations"] == []


def test_models_of_text_are_given_none(visit):
    other = visit()
    assert other.page.locator("#attach").is_hidden()
    assert not other.page.evaluate(GIVE, ["drop", "a.png", "image/png", "AAAA"])
    other.page.check("input[name=mode][value=complete]", force=True)


def test_completions_take_none(one):
    give(one, "paste")
    attached(one, 1)
    one.page.check("input[name=mode][value=complete]", force=True)
    assert one.page.locator("#attach").is_hidden() and one.page.locator("#pictures").is_hidden()
