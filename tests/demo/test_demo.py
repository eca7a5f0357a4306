"""tools/demo.sh from a corpus that is already there to a printed answer: run twice, with the port taken, after a rebuild.

The programs are the real ones, copied so that this demo has a build folder of its own; documents are this project's."""

import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import threading
import time

import openai
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import downloaded  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
DEPS = pathlib.Path(os.environ.get("RETRO_DEPS", pathlib.Path.home() / ".cache/retro-server"))
PROMPT = "When is a chunk closed?"


def corpus_rows():
    command = f"source <(sed -n '/^git_manuals()/,/^}}/p; /^demo_corpus()/,/^)/p' {ROOT}/tools/fetch_corpus.sh); demo_corpus"
    table = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout
    return [line.split() for line in table.splitlines()]


@pytest.fixture
def demo(tmp_path):
    build = tmp_path / "build"
    (build / "demo/corpus/.complete").mkdir(parents=True)
    (build / "demo/corpus/text").mkdir()
    for row in corpus_rows():
        (build / "demo/corpus/.complete" / row[0]).write_text(" ".join(row) + "\n")
    for page in ("architecture.md", "model-format.md", "testing.md"):
        shutil.copy(ROOT / "docs" / page, build / "demo/corpus/text")
    for program in ("retro-server", "retro-index"):
        shutil.copy(BUILD / program, build)
    (build / "lib").symlink_to(BUILD / "lib")  # where the programs look for FAISS

    def run(prompt=PROMPT, **variables):
        start = time.monotonic()
        done = subprocess.run(
            [ROOT / "tools/demo.sh", prompt],
            env=dict(os.environ, BUILD=str(build), DEPS=str(DEPS), **variables),
            capture_output=True,
            text=True,
            timeout=300,
            stdin=subprocess.DEVNULL,
        )
        return done, time.monotonic() - start

    run.build = build
    yield run
    pid_file = build / "demo/server.pid"
    if pid_file.exists():
        subprocess.run(["kill", pid_file.read_text().strip()], check=False)


def server_pid(demo):
    return int((demo.build / "demo/server.pid").read_text())


def listening_port(output):
    return int(re.search(r"asking http://127.0.0.1:(\d+)", output)[1])


def test_answer_with_sources_then_again(demo):
    first, _ = demo()
    assert first.returncode == 0, first.stdout + first.stderr
    answer, sources = first.stdout.split("Sources")
    answer = answer.split(PROMPT)[1]
    assert "With retrieval" in answer and len(answer.split("Without\n")[1]) > 20
    assert re.search(r"(architecture|model-format|testing)\.md.*bytes \d+-\d+", sources)
    assert f"kill {server_pid(demo)}" in sources
    assert sources.rstrip().endswith(f"http://127.0.0.1:{listening_port(first.stdout)}/")

    client = openai.OpenAI(base_url=f"http://127.0.0.1:{listening_port(first.stdout)}/v1", api_key="none", max_retries=0)
    (model,) = [model for model in client.models.list() if model.meta["role"] == "decoder"]
    said = client.chat.completions.create(model=model.id, messages=[{"role": "user", "content": PROMPT}], max_tokens=16)
    assert said.choices[0].message.content and model.meta["chat_template"] == "plain"

    pid = server_pid(demo)
    second, seconds = demo()
    assert second.returncode == 0 and "using the server that is running" in second.stdout, second.stdout + second.stderr
    assert "indexing" not in second.stdout and server_pid(demo) == pid and seconds < 30
    assert second.stdout.split("Sources")[0].split(PROMPT)[1] == answer


def test_the_lines_for_own_documents_can_be_typed(demo, tmp_path):
    done, _ = demo()
    assert done.returncode == 0, done.stdout + done.stderr
    serve, _, ask = done.stdout.split("in place of FOLDER:\n\n")[1].split("\n\n")[:3]
    assert len((serve + ask).splitlines()) == 1 and "retro-server" in serve and "show_answer.py" in ask
    folder = tmp_path / "letters"
    folder.mkdir()
    (folder / "cat.txt").write_text("The cat of the house sleeps on the warm sofa in the kitchen until the evening.\n" * 4)
    serve, ask = serve.replace("FOLDER", str(folder)), ask.replace("A question about them?", "Where does the cat of the house sleep?")
    url = re.search(r"http://[\d.:]+", ask)[0]
    script = f"""cd {ROOT}
{serve} &
for _ in $(seq 1000); do curl -sf -o /dev/null {url}/readyz && break; sleep 0.1; done
{ask}
status=$?
kill $!
wait $!
exit $status
"""
    where = dict(os.environ, XDG_DATA_HOME=str(tmp_path / "data"))
    typed = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120, env=where)
    assert typed.returncode == 0, typed.stderr
    assert "letters/cat.txt, bytes 0-" in typed.stdout.split("Sources")[1]


def test_a_downloaded_model_answers_a_question(demo, tmp_path):
    """With the collection that is there, which another tokenizer cut; then the demo's own model again."""
    model = tmp_path / "downloaded"
    downloaded.write_folder(model)
    assert demo()[0].returncode == 0
    pid = server_pid(demo)
    done, seconds = demo("How is a chunk closed?", MODEL=str(model))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "indexing" not in done.stdout and server_pid(demo) != pid and "small proof" not in done.stdout
    answer, sources = done.stdout.split("Sources")
    assert "With retrieval" in answer and "How is a chunk closed?" in answer
    assert re.search(r"\n    \[1\] 0\.\d+  .*(architecture|model-format|testing)\.md.*bytes \d+-\d+", sources)
    assert "show_answer.py --chat --server" in sources and "/v1/chat/completions" in sources and f"retro-server {model} FOLDER" in sources
    pid = server_pid(demo)
    again, _ = demo("How is a chunk closed?", MODEL=str(model))
    assert again.returncode == 0 and server_pid(demo) == pid and again.stdout.split("Sources")[0].split("closed?")[1] == answer.split("closed?")[1]
    back, _ = demo()
    assert back.returncode == 0 and server_pid(demo) != pid and "small proof" in back.stdout

    missing, _ = demo(MODEL=str(tmp_path / "none"))
    assert missing.returncode == 1 and "there is no such folder" in missing.stderr


def test_a_rebuilt_server_replaces_the_running_one(demo):
    assert demo()[0].returncode == 0
    pid = server_pid(demo)
    shutil.copy(BUILD / "retro-server", demo.build / "new")
    os.replace(demo.build / "new", demo.build / "retro-server")
    done, _ = demo()
    assert done.returncode == 0 and "stopping the server of an earlier run" in done.stdout
    assert server_pid(demo) != pid and not pathlib.Path(f"/proc/{pid}/fd").exists()


def test_a_damaged_collection_is_made_again(demo):
    assert demo()[0].returncode == 0
    tokens = next((demo.build / "demo/collection").glob("gen-*/chunks.tokens"))
    data = bytearray(tokens.read_bytes())
    data[0] ^= 1
    tokens.write_bytes(data)
    done, _ = demo()
    assert done.returncode == 0 and "indexing" in done.stdout and "Sources" in done.stdout


def take_port(own, port, seconds=120):
    """False: somebody listens there all the time, which is as good. Another test may do so for a while."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            own.bind(("127.0.0.1", port))
        except OSError:
            time.sleep(0.5)
        else:
            return True
    return False


def test_port_taken_by_another(demo):
    """Someone else, who is not even HTTP, holds the port that the demo would take."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if take_port(other, 8080):
            other.listen()
            threading.Thread(target=lambda: [other.accept() for _ in range(3)], daemon=True).start()
        done, _ = demo()
        assert done.returncode == 0, done.stdout + done.stderr
        assert listening_port(done.stdout) != 8080


def test_what_is_missing_is_named(demo):
    (demo.build / "retro-index").unlink()
    done, _ = demo()
    assert done.returncode == 1 and "retro-index is missing" in done.stderr
