"""A real Chromium before the real server. `make page-test` runs these tests; they have an environment of their own,
because a browser is large and nothing else needs it.

RETRO_BUILD names the folder of the programs, RETRO_DEPS that of the dependencies, as for tests/http."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
from playwright.sync_api import sync_playwright

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
DEPS = pathlib.Path(os.environ.get("RETRO_DEPS", pathlib.Path.home() / ".cache/retro-server"))
sys.path.insert(0, str(ROOT / "tests/http"))
from chat_model import make_chat_model  # noqa: E402

EVIL = "<img src=x onerror=alert(1)>"
DOCUMENTS = {
    "bridges.md": "# Bridges\n\nThe bridge over the Arn opened in 1911. It carries two tracks. Its arches are made of granite.\n",
    "files.md": "# Files\n\nopen() returns a file descriptor, a small, nonnegative integer that is an index to an entry in "
                "the table of open files of the process.\n",
    "soup.md": f"# Soup {EVIL}\n\nLeek soup takes potatoes {EVIL} and leeks <script>alert(2)</script>. Salt comes last.\n",
}
# Scripts by the words of the question, where the model's own template goes by variables that the page does not send.
TEMPLATE = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
{% if 'cite' in messages[-1].content %}<|to_sources|>{% elif 'quote' in messages[-1].content %}<|to_quotes|>{% elif 'think' in messages[-1].content %}<think>{% elif
'count' in messages[-1].content %}<|to_count|>{% else %}<|to_words|>{% endif %}"""


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="session")
def documents(folder):
    (folder / "documents").mkdir()
    for name, text in DOCUMENTS.items():
        (folder / "documents" / name).write_text(text)
    return folder / "documents"


class Server:
    def __init__(self, config, folder, *sets, **environment):
        self.log = folder / f"server-{time.monotonic_ns()}.log"
        command = [BUILD / "retro-server", "--config", config, *(a for s in sets for a in ("--set", s))]
        with self.log.open("w") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **environment})
        self.url = self.wait_for_address()

    def wait_for_address(self):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if found := re.search(r"listening on (http://127\.0\.0\.1:\d+)", self.log.read_text()):
                return found[1]
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)
        raise AssertionError(f"the server does not listen:\n{self.log.read_text()}")

    def stop(self):
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


def write_config(folder, name, model, documents):
    """A model with a collection of its own."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps({
        "model": {"path": str(model)},
        "retrieval": {"collection": str(folder / name), "embedder": str(DEPS / "minilm")},
        "server": {"port": 0}}))
    command = [BUILD / "retro-index", "build", "--out", folder / name, "--config", path, documents]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return path


@pytest.fixture(scope="session")
def config(folder, documents):
    return write_config(folder, "retro", ROOT / "models/retro-docs", documents)


@pytest.fixture(scope="session")
def chat_config(folder, documents):
    make_chat_model(folder / "talker")
    (folder / "talker/chat_template.jinja").write_text(TEMPLATE)
    return write_config(folder, "chat", folder / "talker", documents)


@pytest.fixture(scope="session")
def start(folder):
    """Starts servers; they end with the session, and must not have crashed."""
    servers = []

    def start_one(config, *sets, **environment):
        servers.append(Server(config, folder, *sets, **environment))
        return servers[-1]

    yield start_one
    for running in servers:
        assert running.stop() == 0, running.log.read_text()


@pytest.fixture(scope="session")
def server(config, start):
    return start(config)


@pytest.fixture(scope="session")
def slow_server(config, start):
    """With portable kernels the model writes slowly enough to be stopped."""
    return start(config, RETRO_CPU="generic")


@pytest.fixture(scope="session")
def chat_server(chat_config, start):
    return start(chat_config)


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        # As root a browser has no sandbox, and a container's /dev/shm is small.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        running = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=arguments)
        yield running
        running.close()


class Visit:
    """A page of its own, and what a test does with it."""

    def __init__(self, browser, server, **context):
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **context})
        self.page = self.context.new_page()
        self.complaints = []
        self.forgives = ""  # part of a complaint that the test provokes
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("console", self.hear)
        self.requests = []
        self.page.on("request", lambda request: self.requests.append(request))
        self.server = server
        self.page.set_default_timeout(120000)

    def hear(self, message):
        if message.type in ("error", "warning") and not (self.forgives and self.forgives in message.text):
            self.complaints.append(message.text)

    def open(self, path="/"):
        self.page.goto(self.server.url + path)
        self.until("document.querySelector('#facts').textContent || !document.querySelector('#welcome .trouble').hidden")
        return self

    def until(self, expression):
        """Playwright's own way evaluates a string in the page, which the page's policy refuses."""
        deadline = time.monotonic() + 120
        while not self.page.evaluate(expression):
            assert time.monotonic() < deadline, expression
            time.sleep(0.01)

    def ask(self, text, reads="on"):
        """Asks, and waits for the end of the answers."""
        self.page.check(f"input[name=read][value={reads}]", force=True)
        self.page.fill("#prompt", text)
        self.page.press("#prompt", "Enter")
        self.wait()

    def wait(self):
        self.page.wait_for_selector("#send:visible")
        assert self.page.locator(".busy").count() == 0

    def set(self, **fields):
        self.page.click("#open-settings")
        for name, value in fields.items():
            field = self.page.locator(f"#settings [name={name}]")
            field.set_checked(value) if isinstance(value, bool) else field.fill(str(value))
        self.page.click("#settings button.main")

    def text(self, selector):
        """By text content: the page skips the layout of what is out of sight, and its inner text is empty then."""
        return self.page.locator(selector).last.text_content()

    def bodies(self):
        return [json.loads(r.post_data) for r in self.requests if r.method == "POST"]


@pytest.fixture
def visit(browser, server):
    """Opens visits; nobody may have complained when the test ends: no error, no refused script, no dialog."""
    visits = []

    def visit_one(to=server, **context):
        visits.append(Visit(browser, to, **context))
        return visits[-1].open()

    visit_one.hear = lambda to=server, **context: visits.append(Visit(browser, to, **context)) or visits[-1]
    yield visit_one
    complaints = [complaint for one in visits for complaint in one.complaints]
    for one in visits:
        one.context.close()
    assert complaints == []
