"""Every state of the page, at two widths, light and dark: axe-core finds nothing, nothing is wider than the screen, and
no request leaves the server."""
import pytest
from axe_playwright_python.sync_playwright import Axe
from test_layout import STATES

# Parts that are seen and wider than what holds them, though nothing lets them scroll.
TOO_WIDE = """() => [...document.querySelectorAll("body *")].filter((e) => e.checkVisibility() && e.clientWidth > 0
  && getComputedStyle(e).display !== "inline" && getComputedStyle(e).overflowX === "visible" && e.scrollWidth > e.clientWidth + 1
  && !e.closest(".unseen, math")).map((e) => [e.id || e.className || e.localName, e.scrollWidth, e.clientWidth])"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("state", STATES)
def test_axe_finds_nothing(visit, chat_server, state, width, scheme):
    one = visit(chat_server, viewport={"width": width, "height": 800}, reduced_motion="reduce", color_scheme=scheme)
    one.set(system="")
    STATES[state](one)
    one.until("!document.querySelector('.flash')")
    found = Axe().run(one.page).response["violations"]
    assert [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found] == []
    assert one.page.evaluate("document.documentElement.scrollWidth") == width
    assert one.page.evaluate(TOO_WIDE) == []


@pytest.mark.parametrize("state", STATES)
def test_no_request_leaves_the_server(visit, chat_server, state):
    """By what the browser itself says it sends, workers, sockets and what pages do not hear of included."""
    one, sent = visit(chat_server, reduced_motion="reduce"), []
    devtools = one.context.new_cdp_session(one.page)
    devtools.on("Network.requestWillBeSent", lambda event: sent.append(event["request"]["url"]))
    devtools.on("Network.webSocketCreated", lambda event: sent.append(event["url"]))
    devtools.send("Network.enable")
    one.page.reload()
    one.open()
    one.set(system="")
    STATES[state](one)
    assert len(sent) > 20
    assert [url for url in sent if not url.startswith((f"{chat_server.url}/", f"blob:{chat_server.url}/", "data:"))] == []
