"""tools/samples.py against the running server: the page holds what the server answers, as it is, and the same each time."""
import re
import subprocess
import sys

from conftest import ROOT

PROMPTS = ROOT / "tools/samples_prompts.txt"
LIMIT = 12


def samples(server, folder, *arguments):
    command = [sys.executable, ROOT / "tools/samples.py", "--server", server.url, "--out", folder / "s.md", "--max-tokens", str(LIMIT)]
    return subprocess.run([*command, *arguments], capture_output=True, text=True)


def blocks(page):
    """The text of each fenced block, in order."""
    return [m[2] for m in re.finditer(r"^(`{3,})text\n(.*?)\n\1$", page, re.MULTILINE | re.DOTALL)]


def test_the_page_is_what_the_server_answers(server, tmp_path):
    (tmp_path / "prompts").write_text("The fork() call\n\nA block:\n```\nint main(\n\n\nChunks are\n")
    prompts = ["The fork() call", "A block:\n```\nint main(", "Chunks are"]
    assert samples(server, tmp_path, "--prompts", tmp_path / "prompts", "--seed", "7").returncode == 0
    page = (tmp_path / "s.md").read_text()
    shown = blocks(page)
    assert shown[::3] == prompts
    for i, prompt in enumerate(prompts):
        for j, enabled in ((1, True), (2, False)):
            answer = server.complete(prompt, max_tokens=LIMIT, temperature=0.7, top_p=0.95, seed=7, retrieval={"enabled": enabled})
            assert shown[3 * i + j] == answer["choices"][0]["text"]
            for n in (n for chunk in answer.get("retrieval", []) for n in chunk["neighbors"]):
                assert f"bytes {n['start']} to {n['end']}, similarity {n['similarity']:.2f}" in page and n["document"] in page
    assert "| seed | 7," in page and "temperature 0.7, top-p 0.95, at most 12 tokens" in page
    assert samples(server, tmp_path, "--prompts", tmp_path / "prompts", "--seed", "7").returncode == 0
    assert (tmp_path / "s.md").read_text() == page


def test_the_prompts_that_ship(server):
    """Twenty beginnings of very different length."""
    prompts = [p for p in PROMPTS.read_text(encoding="utf-8").split("\n\n") if p.strip()]
    lengths = [server.complete(p, max_tokens=1, retrieval={"enabled": False})["usage"]["prompt_tokens"] for p in prompts]
    assert len(prompts) == len(set(prompts)) == 20
    assert min(lengths) >= 5 and max(lengths) <= 90 and len(set(lengths)) > 10


def test_errors_are_named(server, start, tmp_path):
    (tmp_path / "empty").write_text("\n\n")
    for arguments, words in [(["--prompts", tmp_path / "empty"], "no prompts"), (["--prompts", tmp_path / "absent"], "absent"),
                             (["--prompts", PROMPTS, "--temperature", "9"], "400: temperature")]:
        done = samples(server, tmp_path, *arguments)
        assert done.returncode == 1 and words in done.stderr and not (tmp_path / "s.md").exists(), done.stderr
    done = samples(start("retrieval.collection="), tmp_path, "--prompts", PROMPTS)
    assert done.returncode == 1 and "no collection" in done.stderr
