"""Runs the commands of README.md and docs/*.md, so that what the pages say can be typed.

A page's ```sh blocks run in order in one bash, as a reader would type them, in a folder that looks like the checkout but
is thrown away; `build` there is $RETRO_BUILD. A block after `<!-- not run: reason -->` is left out. A page with
`<!-- needs: server -->` finds a server with a small collection where the page says port 8080. The example port and the
default dependency folder are replaced by what this run uses; nothing else is changed.
"""

import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = (ROOT / os.environ.get("RETRO_BUILD", "build")).resolve()
DEPS = pathlib.Path(os.environ.get("RETRO_DEPS", pathlib.Path.home() / ".cache/retro-server"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"(?P<skip><!-- not run: [^\n]+ -->\n+)?^```sh\n(?P<commands>.*?)^```$", re.MULTILINE | re.DOTALL)
# What the server's collection holds: pages about what the commands ask for. All of them would be 3 500 chunks to embed.
SERVED = [ROOT / "README.md", *(ROOT / "docs" / name for name in ("serving.md", "indexing.md", "architecture.md"))]
PAGE_SECONDS = 1200


def blocks(page):
    """(line, commands) of the blocks to run."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start("commands")) + 1, match["commands"])
        for match in BLOCK.finditer(text)
        if not match["skip"]
    ]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def lay_out(folder):
    """The checkout's files by links, so commands read them, and what they write stays here."""
    for entry in ROOT.iterdir():
        if entry.name not in ("build", ".git"):
            (folder / entry.name).symlink_to(entry)
    (folder / "build").symlink_to(BUILD)
    return folder


def wait_healthy(process, port, log):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the server ended:\n{log.read_text()}"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise AssertionError(f"the server did not answer within a minute:\n{log.read_text()}")


def free_pair():
    """A free port before a free one: ranks listen at both. They lie below those that outgoing connections get."""
    while True:
        port = random.randrange(20000, 32000, 2)
        try:
            with socket.create_server(("127.0.0.1", port)), socket.create_server(("127.0.0.1", port + 1)):
                return port
        except OSError:
            continue


@pytest.fixture(scope="session")
def server_port(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    port = free_port()
    config = folder / "retro.json"
    config.write_text(
        json.dumps(
            {
                "model": {"path": str(ROOT / "models/retro-docs")},
                "retrieval": {"collection": str(folder / "collection"), "embedder": str(DEPS / "minilm")},
                "server": {"host": "127.0.0.1", "port": port},
            }
        )
    )
    subprocess.run(
        [BUILD / "retro-index", "build", "--out", folder / "collection", "--config", config, *SERVED],
        check=True,
        timeout=PAGE_SECONDS,
    )
    log = folder / "server.log"
    with open(log, "w", encoding="utf-8") as out:
        process = subprocess.Popen([BUILD / "retro-server", "--config", config], stdout=out, stderr=out)
    try:
        wait_healthy(process, port, log)
        yield port
    finally:
        process.terminate()
        assert process.wait(timeout=60) == 0, log.read_text()


def test_every_page_is_found():
    assert any(blocks(page) for page in PAGES)
    for page in PAGES:
        fences = re.findall(r"^```(\w*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert not {"bash", "shell", "console"} & set(fences), f"{page}: commands are fenced as sh"


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: p.name)
def test_commands(page, tmp_path, request):
    wants_server = "<!-- needs: server -->" in page.read_text(encoding="utf-8")
    port = request.getfixturevalue("server_port") if wants_server else free_pair()
    script = ["set -euo pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true; wait || true' EXIT"]
    for line, commands in blocks(page):
        commands = re.sub(r"\b8080\b", str(port), commands).replace("~/.cache/retro-server", str(DEPS))
        commands = commands.replace("$HOME/.cache/retro-server", str(DEPS))
        script += [f"echo '--- {page.name}:{line}'", commands]
    process = subprocess.Popen(
        ["bash", "-c", "\n".join(script)],
        cwd=lay_out(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=PAGE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        pytest.fail(f"still running after {PAGE_SECONDS} s:\n{output}")
    assert process.returncode == 0, f"exit code {process.returncode} after:\n{output}"
