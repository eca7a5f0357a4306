"""Other programs: the four addresses, and the configuration of each client as the documentation has it."""
import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import ROOT


def open_clients(one):
    one.page.click("#open-clients")
    one.until("document.querySelectorAll('#clients details').length > 3")
    return one


def documented():
    """The blocks of code below the headings that the page shows."""
    agents = (ROOT / "docs/agents.md").read_text()
    tools = re.search(r"^## Clients\n(.*?)^## ", (ROOT / "docs/mcp.md").read_text(), re.M | re.S)[1]
    return re.findall(r"^```\w*\n(.*?)^```$", agents + tools, re.M | re.S)


def test_addresses_are_this_servers(visit, chat_server):
    one = open_clients(visit(chat_server, permissions=["clipboard-read", "clipboard-write"]))
    assert one.page.locator("#doors code").all_text_contents() == [
        f"{chat_server.url}/{path}" for path in ("v1", "v1/messages", "mcp", "api")]
    one.page.locator("#doors button").nth(2).click()
    one.until("document.querySelector('#clients-told').textContent === 'Copied.'")
    assert one.page.evaluate("navigator.clipboard.readText()") == f"{chat_server.url}/mcp"


def test_configurations_are_the_documentations(visit, chat_server):
    one = open_clients(visit(chat_server, permissions=["clipboard-read", "clipboard-write"]))
    blocks = documented()
    name = one.page.evaluate("document.title.split(' ')[0]")
    expected = [re.sub(r"\bNAME\b", name, block.rstrip("\n")).replace("http://127.0.0.1:8080", chat_server.url) for block in blocks]
    assert len(blocks) > 8 and one.page.locator("#clients pre").all_text_contents() == expected
    for details in one.page.locator("#clients details").all():
        details.locator("summary").click()
    one.page.locator("#clients .listing button").nth(1).click()
    one.until("document.querySelector('#clients-told').textContent === 'Copied.'")
    assert one.page.evaluate("navigator.clipboard.readText()") == expected[1]


@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_nothing(visit, chat_server, width):
    one = open_clients(visit(chat_server, viewport={"width": width, "height": 740}))
    for details in one.page.locator("#clients details").all():
        details.locator("summary").click()
    assert Axe().run(one.page).response["violations"] == []
    assert one.page.evaluate("document.documentElement.scrollWidth") == width
