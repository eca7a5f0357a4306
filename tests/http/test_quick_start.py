"""retro-server MODEL DOCUMENTS: a collection is made, followed and served without a configuration."""
import json
import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.request

import pytest

from conftest import BUILD

MODEL = pathlib.Path(__file__).parents[2] / "models/retro-docs"
SERVER = BUILD / "retro-server"


@pytest.fixture()
def home(tmp_path):
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "ferry.md").write_text("# Ferry\n\nThe ferry to the north coast leaves at half past seven.\n")
    return tmp_path


def environment(home):
    return {**os.environ, "XDG_DATA_HOME": str(home / "data")}


class Started:
    def __init__(self, home, *words, **variables):
        self.log = home / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([SERVER, *words, "--set", "server.port=0"], cwd=home,
                                            env={**environment(home), **variables},
                                            stdout=subprocess.DEVNULL, stderr=log)
        self.wait(lambda: "listening on" in self.text())
        self.address = self.text().split("listening on ")[1].split()[0]

    def text(self):
        assert self.process.poll() is None, self.log.read_text()
        return self.log.read_text()

    def wait(self, condition):
        end = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < end, self.text()
            time.sleep(0.05)

    def documents(self):
        with urllib.request.urlopen(self.address + "/v1/documents", timeout=60) as reply:
            return {document["path"] for document in json.load(reply)["data"]}

    def followers(self):
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [pid for pid in children if b"watch" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]

    def stop(self, number=signal.SIGTERM):
        """The exit status; what followed the documents has ended, too."""
        followers = self.followers()
        self.process.send_signal(number)
        status, end = self.process.wait(120), time.monotonic() + 60
        while any(pathlib.Path(f"/proc/{pid}").exists() for pid in followers):
            assert time.monotonic() < end
            time.sleep(0.05)
        return status


def refused(home, *words):
    done = subprocess.run([SERVER, "--set", "server.port=0", *words], cwd=home, env=environment(home), capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    return done.stderr


def test_a_model_and_a_folder(home):
    first = Started(home, os.path.relpath(MODEL, home), "notes")
    assert first.documents() == {"notes/ferry.md"}
    collection = next((home / "data/retro-server").glob("notes-*/CURRENT")).parent
    assert str(collection) in first.text() and len(first.followers()) == 1
    (home / "notes/bus.md").write_text("# Bus\n\nThe bus leaves at nine.\n")
    first.wait(lambda: first.documents() == {"notes/ferry.md", "notes/bus.md"})
    assert first.stop() == 0

    # The collection is there again, and what changed meanwhile is in it.
    (home / "notes/ferry.md").unlink()
    again = Started(home, MODEL, home / "notes")
    again.wait(lambda: again.documents() == {"notes/bus.md"})
    assert "building the index" not in again.text()
    assert len(list((home / "data/retro-server").glob("*/CURRENT"))) == 1
    assert again.stop(signal.SIGKILL) == -signal.SIGKILL


def test_skipped_files_do_not_speak_of_the_server(home):
    """The words are retro-index's: the server has no --verbose, and does not end with its exit code."""
    (home / "notes/empty.txt").touch()
    (home / "notes/a.bin").write_bytes(b"\0")
    server = Started(home, MODEL, "notes")
    assert "--verbose of retro-index" in server.text() and "exit code of retro-index" in server.text()
    assert server.stop() == 0


def test_a_model_alone(home):
    alone = Started(home, MODEL)
    assert not (home / "data").exists()
    assert alone.stop() == 0


def test_refused(home):
    assert "No such file" in refused(home, "nowhere", "notes") and "GGUF" in refused(home, "nowhere", "notes")
    assert "nothere" in refused(home, MODEL, "nothere")
    (home / "retro.json").write_text("{}")
    assert "unexpected argument" in refused(home, "--config", "retro.json", MODEL)
    assert "no embedder" in subprocess.run([SERVER, MODEL, "notes"], cwd=home, env={**environment(home), "HOME": str(home)},
                                           capture_output=True, text=True, timeout=120).stderr
    (home / "empty").mkdir()
    said = refused(home, MODEL, "empty")
    assert "no documents found" in said and "was not built" in said
    assert "give one of them" in refused(home, MODEL, "notes", "--set", "retrieval.collection=other")


def fake_desktop(home, script):
    """Variables of a desktop whose xdg-open is this script."""
    (home / "bin").mkdir()
    (home / "bin/xdg-open").write_text(f"#!/bin/sh\n{script}\n")
    (home / "bin/xdg-open").chmod(0o755)
    return {"DISPLAY": ":7", "PATH": f"{home}/bin:{os.environ['PATH']}"}


def test_the_page_is_opened(home):
    """By a browser that lives on: it is no child of the server, and has none of its streams."""
    variables = fake_desktop(home, f'echo "$1" >{home}/opened.part; mv {home}/opened.part {home}/opened; exec sleep 600 7>>{home}/browser')
    server = Started(home, MODEL, "--open", **variables)
    server.wait(lambda: (home / "opened").exists())
    assert (home / "opened").read_text() == server.address + "/\n"
    server.wait(lambda: browsers(home))  # the shell has become the browser
    (browser,) = browsers(home)
    assert {os.readlink(browser / "fd" / n) for n in "012"} == {"/dev/null"}
    assert not any("socket:" in os.readlink(fd) for fd in (browser / "fd").iterdir())
    assert server.stop() == 0
    assert browser.exists()
    os.kill(int(browser.name), signal.SIGKILL)


def browsers(home):
    return [p for p in pathlib.Path("/proc").iterdir() if p.name.isdigit() and opened(p) == str(home / "browser")]


def opened(process):
    try:
        return os.readlink(process / "fd/7")
    except OSError:
        return None


def test_the_page_is_not_opened_by_itself(home):
    server = Started(home, MODEL, **fake_desktop(home, f"touch {home}/opened"))
    assert server.stop() == 0 and not (home / "opened").exists()


@pytest.mark.parametrize("variables, words", [
    ({"DISPLAY": "", "WAYLAND_DISPLAY": ""}, "there is no desktop here"),
    ({"DISPLAY": ":7", "PATH": "/nowhere"}, "xdg-open")])
def test_the_page_cannot_be_opened(home, variables, words):
    server = Started(home, MODEL, "--open", **variables)
    server.wait(lambda: words in server.text())
    assert f"open {server.address}/ in a browser" in server.text()
    assert server.stop() == 0


def test_a_misspelt_option(home):
    assert "did you mean --open?" in refused(home, MODEL, "--opne")


@pytest.mark.parametrize("word, words", [
    ("--port", "--set KEY=VALUE sets server.port"),
    ("--max-context=4096", "--set KEY=VALUE sets server.max_context"),
    ("--threads", "--set KEY=VALUE sets model.threads or retrieval.threads"),
    ("--model", "the model is the first word"),
    ("-m", "the model is the first word"),
    ("--ctx-size", "see --help")])
def test_options_of_other_programs(home, word, words):
    assert words in refused(home, MODEL, word)


def test_no_model(home):
    """The words say what is wrong with a path that is there."""
    assert "retro-server MODEL DOCUMENTS" in refused(home)
    assert "notes is no model: it is neither a folder with config.json nor a .gguf file" in refused(home, "notes")
    assert "ferry.md is no model: it is neither" in refused(home, "notes/ferry.md")
    assert "nothere: a document, a file or a folder: No such file" in refused(home, MODEL, "nothere")


def test_a_busy_port_is_known_before_documents_are_read(home):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = refused(home, MODEL, "notes", "--set", f"server.port={taken.getsockname()[1]}")
    assert "Address already in use" in said and "building the index" not in said and not (home / "data").exists()
