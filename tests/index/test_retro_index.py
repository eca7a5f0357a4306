"""The real retro-index on small folders of documents: build, search, stats, verify, bad input, Ctrl-C, damage."""
import gzip
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
INDEX = ROOT / os.environ.get("RETRO_BUILD", "build") / "retro-index"
DEPS = pathlib.Path(os.environ.get("RETRO_DEPS", pathlib.Path.home() / ".cache/retro-server"))
MODEL = ["--set", f"model.path={ROOT / 'models/retro-docs'}", "--set", f"retrieval.embedder={DEPS / 'minilm'}"]


def run(*arguments):
    return subprocess.run([INDEX, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def build(out, *arguments):
    return run("build", "--out", out, *MODEL, *arguments)


def stats(folder):
    done = run("stats", folder)
    assert done.returncode == 0, done.stderr
    return {line[:14].strip(): line[14:] for line in done.stdout.splitlines()}


@pytest.fixture()
def docs(tmp_path):
    folder = tmp_path / "docs"
    (folder / "sub").mkdir(parents=True)
    (folder / "cats.md").write_text("# Cats\n\nThe cat sleeps on the warm sofa all day and purrs.\n")
    (folder / "sub/tar.txt").write_text("To unpack an archive, run tar with the options -xf and the archive's name.\n")
    (folder / "sub/page.html").write_text(
        "<html><head><title>Sockets</title></head><body><nav>Home</nav><h1>Sockets</h1>"
        "<p>A socket is an endpoint of a network connection; call bind, listen and accept.</p></body></html>")
    (folder / "sub/greet.1").write_text(
        ".TH GREET 1 2024 greet\n.SH NAME\ngreet \\- print a friendly message\n.SH DESCRIPTION\nPrints a message.\n")
    return folder


def hits(stdout):
    pattern = r"^(\d+)  (-?[\d.]+)  (\S+)  \[(\d+), (\d+)\)(?: \((.*?)\))?(?:  (.*))?$"
    return [(m[3], float(m[2]), int(m[4]), int(m[5]), m[7], m[6]) for m in re.finditer(pattern, stdout, re.M)]


def test_build_search_verify(docs, tmp_path):
    out = tmp_path / "collection"
    done = build(out, docs)
    assert done.returncode == 0, done.stderr
    assert "4 documents" in done.stdout
    found = stats(out)
    assert found["documents"] == "4" and found["chunk length"] == "64" and found["index"] == "Flat"
    for query, path, title, place in [
            ("how do I extract a tarball", "docs/sub/tar.txt", None, "line 1"),
            ("network programming", "docs/sub/page.html", "Sockets", "Sockets"),
            ("a pet that naps", "docs/cats.md", "Cats", "line 1, Cats"),
            ("say hello", "docs/sub/greet.1", "greet - print a friendly message", "DESCRIPTION")]:
        done = run("search", out, query, "-k", 2)
        assert done.returncode == 0, done.stderr
        best, second = hits(done.stdout)
        assert best[0] == path and best[4] == title and best[5] == place, done.stdout
        assert 1 >= best[1] >= second[1] >= -1
    assert run("verify", out).returncode == 0


def test_byte_ranges(tmp_path):
    """The range of every hit is where its text lies in what extract prints."""
    page = tmp_path / "long.md"
    page.write_text("# Numbers\r\n\r\n" + " ".join(f"The number {i} is naïve – or is it?\r\n" for i in range(200)),
                    encoding="utf-8", newline="")
    out = tmp_path / "collection"
    assert build(out, page).returncode == 0
    text = subprocess.run([INDEX, "extract", page], capture_output=True, check=True).stdout
    assert text == page.read_bytes()
    done = subprocess.run([INDEX, "search", out, "number 150", "-k", "1000"], capture_output=True, check=True)
    pieces = re.findall(rb"^\d+  \S+  long.md  \[(\d+), (\d+)\) \(line \d+, Numbers\)  Numbers\n((?:    .*\n)*)", done.stdout, re.M)
    assert len(pieces) == int(stats(out)["chunks"]) > 10
    ranges = sorted((int(start), int(end)) for start, end, _ in pieces)
    assert ranges[0][0] == 0 and ranges[-1][1] == len(text)
    assert all(a[1] == b[0] for a, b in zip(ranges, ranges[1:]))
    for start, end, shown in pieces:
        lines = [line[4:].replace(b"\\r", b"\r") for line in shown.split(b"\n")[:-1]]
        # A character cut by the chunk's edge is shown as U+FFFD, and is whole in the range where it begins.
        piece, whole = b"\n".join(lines), text[int(start):int(end)].decode()
        inner = piece.decode().strip("\ufffd")
        assert inner in whole and len(whole.removesuffix("\n")) - len(inner) <= (piece.count(b"\xef\xbf\xbd") > 0)


def test_names_steer_no_terminal(tmp_path):
    """Names and contents of files reach a terminal escaped, on the lines where it belongs."""
    folder = tmp_path / "docs"
    folder.mkdir()
    hostile = "\x1b]0;title\a\nskipped: \x9b31m\\"
    (folder / f"{hostile}.md").write_text("# A \x1b[2Jtitle\n\nThe cat sleeps\x1b[31m all day.\n")
    (folder / f"{hostile}.txt").write_text("")
    (folder / f"{hostile}.bin").write_text("")
    (folder / os.fsdecode(b"\xff.txt")).write_text("")
    escaped = r"\x1b]0;title\x07\nskipped: \xc2\x9b31m\\"
    out = tmp_path / "o\x1b[31mut"
    done = build(out, "--verbose", folder)
    assert done.returncode == 2, done.stderr
    said = [line for line in done.stderr.splitlines() if str(folder) in line]
    names = [line for line in said if line.startswith(("skipped: ", "not a known kind: "))]
    assert len(names) == 3 and all(line.startswith("not read: ") for line in said if line not in names)
    assert sum(f"{folder}/{escaped}" in line for line in names) == 2
    assert sum(rf"{folder}/\xff.txt" in line for line in names) == 1
    found = run("search", out, "cat")
    shown = done.stderr + done.stdout + found.stdout + run("verify", out).stdout
    assert all(c == "\n" or c.isprintable() for c in shown), repr(shown)
    first, *text = found.stdout.splitlines()
    assert f"docs/{escaped}.md" in first and r"A \x1b[2Jtitle" in first
    assert any(r"sleeps\x1b[31m" in line for line in text)
    missing = run("stats", "/nowhere\x1b[31m")
    assert missing.returncode == 1 and r"/nowhere\x1b[31m" in missing.stderr


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", ">&- 2>&-", "<&- 2>&-"])
def test_messages_never_go_into_files(docs, tmp_path, closed):
    """A closed standard stream's number must not be given to a file of the collection."""
    out = tmp_path / "collection"
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", INDEX, "build", "--out", out, *MODEL, docs]
    subprocess.run(command, stdout=subprocess.DEVNULL, timeout=60)
    done = run("verify", out)
    assert done.returncode == 0, done.stderr
    assert (out / "LOCK").read_bytes() == b""


def test_large_files_name_the_option(docs, tmp_path):
    done = build(tmp_path / "collection", docs, "--max-file-bytes", "60")
    assert done.returncode == 2
    assert "greet.1: 100 bytes, the limit is 60 (--max-file-bytes)" in done.stderr


def test_second_build_replaces(docs, tmp_path):
    out = tmp_path / "collection"
    assert build(out, docs).returncode == 0
    (docs / "sub/page.html").unlink()
    done = build(out, docs, "--chunk-length", 16, "--index", "Exact")
    assert done.returncode == 0, done.stderr
    found = stats(out)
    assert (found["generation"], found["documents"], found["chunk length"], found["index"]) == ("2", "3", "16", "Exact")
    assert "page.html" not in run("search", out, "network sockets").stdout
    assert run("verify", out).returncode == 0


def test_failed_build_leaves_the_old(docs, tmp_path):
    out = tmp_path / "collection"
    assert build(out, docs).returncode == 0
    before = sorted(out.rglob("*"))
    done = build(out, docs, "--index", "NoSuchIndex")
    assert done.returncode == 1 and "NoSuchIndex" in done.stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    done = build(out, empty)
    assert done.returncode == 1 and "no documents" in done.stderr
    assert sorted(out.rglob("*")) == before
    assert run("verify", out).returncode == 0


def test_bad_input_is_named(docs, tmp_path):
    bad = {"empty.txt": b"", "blank.md": b" \n\n", "nul.txt": b"a\0b", "latin.rst": b"caf\xe9 \xe9t\xe9 " * 10,
           "plain.1": b"no roff\n", "other.1": b".so man1/ls.1\n", "packed.3.gz": gzip.compress(b".so man3/x.3\n"),
           "deep.html": b"<div>" * 2000 + b"x"}
    for name, content in bad.items():
        (docs / name).write_bytes(content)
    os.mkfifo(docs / "pipe.txt")
    (docs / "zero.txt").symlink_to("/dev/zero")
    (docs / "self.txt").symlink_to("self.txt")
    (docs / "sub/loop").symlink_to("..")
    (docs / "gone.txt").symlink_to("nowhere")
    with open(docs / "huge.txt", "wb") as f:
        f.truncate(2 << 30)
    secret = docs / "secret.txt"
    secret.write_text("x")
    secret.chmod(0)
    named = [*bad, "pipe.txt", "zero.txt", "self.txt", "sub/loop", "gone.txt", "huge.txt"]
    if os.geteuid() != 0:
        named.append("secret.txt")
    for name in ["a.bin", "b.bin", "Makefile", ".hidden.txt"]:
        (docs / name).write_text("text")
    (docs / "copy.txt").write_bytes((docs / "cats.md").read_bytes())
    (docs / "link.md").symlink_to("cats.md")
    out = tmp_path / "collection"
    done = build(out, docs)
    assert done.returncode == 2, done.stderr
    for name in named:
        assert re.search(rf"^skipped: {docs / name}: \S", done.stderr, re.M), (name, done.stderr)
    assert done.stderr.count("skipped:") == len(named)
    assert 'not read: 2 files of kind ".bin"' in done.stderr
    assert "not read: 1 name that begins with a dot: .hidden.txt\n" in done.stderr
    assert "1 copies of texts" in done.stdout and f"{len(named)} skipped" in done.stdout
    assert "3 of other kinds or hidden not read" in done.stdout
    assert stats(out)["documents"] == ("6" if os.geteuid() != 0 else "7")
    assert run("verify", out).returncode == 0


def test_other_kinds_beside_documents_are_counted(docs, tmp_path):
    """They are no mistake: the exit code is 0. --verbose names them."""
    for name in ["a.bin", "b.bin", "c.json", ".git/config", ".env", ".a", ".b", ".c", ".d"]:
        (docs / name).parent.mkdir(exist_ok=True)
        (docs / name).write_text("text")
    done = build(tmp_path / "collection", docs)
    assert done.returncode == 0, done.stderr
    assert 'not read: 2 files of kind ".bin"\n' in done.stderr and 'not read: 1 file of kind ".json"\n' in done.stderr
    assert "not read: 6 names that begin with a dot: .a, .b, .c, .d, .env, ...\n" in done.stderr
    assert "9 of other kinds or hidden not read" in done.stdout and str(docs) not in done.stderr
    done = build(tmp_path / "collection", docs, "--verbose")
    for name in ["a.bin", "b.bin", "c.json", ".git", ".env"]:
        assert f": {docs / name}\n" in done.stderr


def test_links_out_of_the_folder_are_asked_for(docs, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("The password is swordfish and nobody else may read it.\n")
    (docs / "file.txt").symlink_to(outside / "secret.txt")
    (docs / "folder").symlink_to(outside)
    (docs / "up").symlink_to("../outside")
    (docs / "inside.md").symlink_to("sub/tar.txt")
    out = tmp_path / "collection"
    done = build(out, docs)
    assert done.returncode == 2 and "4 documents" in done.stdout
    for name in ["file.txt", "folder", "up"]:
        assert f"skipped: {docs / name}: a link that leads out of the folder (--follow)\n" in done.stderr
    assert "swordfish" not in run("search", out, "the password").stdout
    done = build(out, docs, "--follow")
    assert done.returncode == 0 and "5 documents" in done.stdout, done.stderr
    assert "swordfish" in run("search", out, "the password").stdout
    given = tmp_path / "given"
    given.symlink_to(outside)
    assert "1 documents" in build(out, given).stdout


def test_given_file_of_unknown_kind(docs, tmp_path):
    other = tmp_path / "a.bin"
    other.write_bytes(b"text")
    done = build(tmp_path / "collection", docs, other)
    assert done.returncode == 2 and f"skipped: {other}: not a known kind" in done.stderr


def test_same_names_are_told_apart(tmp_path):
    for side in "ab":
        (tmp_path / side / "doc").mkdir(parents=True)
        (tmp_path / side / "doc/x.txt").write_text(f"Text number {side} about nothing at all.")
    out = tmp_path / "collection"
    assert build(out, tmp_path / "a/doc", tmp_path / "b/doc").returncode == 0
    paths = {hit[0] for hit in hits(run("search", out, "text").stdout)}
    assert paths == {"a/doc/x.txt", "b/doc/x.txt"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(docs, tmp_path, number):
    out = tmp_path / "collection"
    assert build(out, docs).returncode == 0
    before = sorted(out.rglob("*"))
    many = tmp_path / "many"
    many.mkdir()
    for i in range(300):
        (many / f"{i}.txt").write_text(" ".join(f"word{j} of text {i}." for j in range(400)))
    process = subprocess.Popen([INDEX, "build", "--out", out, *MODEL, many], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (out / "gen-000002").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.5)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 130 and "unchanged, and the next build goes on" in stderr
    # Where it had embedded something, that is kept.
    assert sorted(set(out.rglob("*")) - {out / "unfinished.vectors"}) == before
    assert run("verify", out).returncode == 0


def test_killed_and_two_writers(docs, tmp_path):
    out = tmp_path / "collection"
    assert build(out, docs).returncode == 0
    many = tmp_path / "many"
    many.mkdir()
    for i in range(300):
        (many / f"{i}.txt").write_text(" ".join(f"word{j} of text {i}." for j in range(400)))
    process = subprocess.Popen([INDEX, "build", "--out", out, *MODEL, many], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (out / "gen-000002").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    done = build(out, docs)
    assert done.returncode == 1 and "another program" in done.stderr
    process.kill()
    process.wait()
    assert (out / "gen-000002").exists()
    assert run("verify", out).returncode == 0 and stats(out)["generation"] == "1"
    assert build(out, docs).returncode == 0
    assert stats(out)["generation"] == "2" and run("verify", out).returncode == 0


def test_goes_on(tmp_path):
    """After a kill the next build takes the vectors over that are whole, and makes what it would have made from nothing."""
    many, out, whole = tmp_path / "many", tmp_path / "collection", tmp_path / "whole"
    many.mkdir()
    for i in range(10):
        (many / f"{i}.txt").write_text(" ".join(f"word{j} of text {i}." for j in range(80)))
    process = subprocess.Popen([INDEX, "build", "--out", out, *MODEL, "--chunk-length", "8", many], stderr=subprocess.DEVNULL)
    kept = out / "unfinished.vectors"
    deadline = time.monotonic() + 60
    while not (kept.exists() and kept.stat().st_size > 300 * 1568) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait()
    raw = bytearray(kept.read_bytes())
    n = (len(raw) - 32) // 1568
    raw[32 + (n - 2) * 1568 + 200] ^= 1
    kept.write_bytes(raw)

    (many / "7.txt").write_text("This file has changed meanwhile.")
    (many / "0.txt").rename(many / "zz.txt")
    done = build(out, many, "--chunk-length", 8)
    assert done.returncode == 0 and f"going on: an interrupted build has left the vectors of {n - 2} chunks" in done.stderr
    assert not kept.exists() and run("verify", out).returncode == 0
    fresh = build(whole, many, "--chunk-length", 8)
    assert fresh.returncode == 0 and "going on" not in fresh.stderr
    files = lambda folder: {f.relative_to(folder / "gen-000001"): f.read_bytes() for f in (folder / "gen-000001").iterdir()}
    assert files(out) == files(whole)

    # Vectors of another maker are no use.
    kept.write_bytes(raw)
    done = build(out, many / "7.txt", "--set", "retrieval.document_prompt=passage: ")
    assert done.returncode == 0 and "going on" not in done.stderr and not kept.exists()
    kept.write_bytes(b"no vectors at all")
    assert build(out, many / "7.txt").returncode == 0 and not kept.exists()


def test_damage_is_found(docs, tmp_path):
    out = tmp_path / "collection"
    assert build(out, docs).returncode == 0
    for name in ["CURRENT", *(f"gen-000001/{f}" for f in ("MANIFEST", "chunks.tokens", "chunks.offsets", "documents",
                                                        "chunks.words", "vectors.faiss"))]:
        file = out / name
        good = file.read_bytes()
        middle = len(good) // 2
        file.write_bytes(good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1:])
        for command in (["verify", out], ["search", out, "cat"], ["stats", out]):
            done = run(*command)
            assert done.returncode == 1 and out.name in done.stderr, (name, done)
        file.write_bytes(good)
    assert run("verify", out).returncode == 0


def test_little_address_space_is_an_error_and_no_hang(docs, tmp_path):
    """OpenBLAS, which comes with FAISS, asks for its buffers without end where a limit refuses them."""
    out = tmp_path / "collection"
    assert build(out, docs).returncode == 0
    exact = tmp_path / "exact"
    assert build(exact, docs, "--index", "Exact").returncode == 0
    refused = 0
    for megabytes in range(150, 2000, 50):
        limit = ["prlimit", f"--as={megabytes}000000"]
        done = subprocess.run([*limit, INDEX, "stats", out], capture_output=True, text=True, timeout=20)
        if done.returncode == 0:
            break
        if "error while loading shared libraries" not in done.stderr:
            refused += 1
            assert f"ulimit -v is {megabytes * 1000000 // 1024}" in done.stderr, done.stderr
            assert "OMP_NUM_THREADS=1" in done.stderr and "--index Exact" in done.stderr
            done = subprocess.run([*limit, INDEX, "stats", exact], capture_output=True, text=True, timeout=20)
            assert done.returncode == 0, done.stderr
    assert refused > 0 and done.returncode == 0
    done = subprocess.run([*limit, INDEX, "neighbors", out, "--out", tmp_path / "n"], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0 or "ulimit -v" in done.stderr


@pytest.mark.parametrize("index, words", [
    ("IVF4096,Flat", "needs at least 4096 chunks, one for each list or code that it learns, and these documents give 4"),
    ("PQ48", "needs at least 256 chunks"), ("PQ7", "FAISS: PQ7: "), ("NoSuchIndex", "NoSuchIndex")])
def test_an_impossible_index_is_refused_before_anything_is_embedded(docs, tmp_path, index, words):
    out = tmp_path / "collection"
    done = build(out, docs, "--index", index)
    assert done.returncode == 1 and words in done.stderr
    assert "building the index" not in done.stderr and "Error in" not in done.stderr and ".cpp" not in done.stderr
    assert not list(out.glob("gen-*"))
    assert build(out, docs, "--index", "IVF2,Flat").returncode == 0


def test_what_is_in_a_collection(docs, tmp_path):
    out = tmp_path / "collection"
    assert build(out, docs).returncode == 0
    done = run("list", out)
    assert done.returncode == 0
    assert done.stdout.split() == ["docs/cats.md", "docs/sub/greet.1", "docs/sub/page.html", "docs/sub/tar.txt"]
    listed = run("list", "--long", out).stdout.splitlines()
    assert all(re.fullmatch("[0-9a-f]{32}", line[:32]) for line in listed)
    assert [line[34:] for line in listed] == ["     1  docs/cats.md  Cats", "     1  docs/sub/greet.1  greet - print a friendly message",
                                              "     1  docs/sub/page.html  Sockets", "     1  docs/sub/tar.txt"]
    assert re.fullmatch(r"[0-9a-f]{32}       1  docs/sub/page.html  Sockets\n", run("list", "--long", out, "sub/page").stdout)
    done = run("list", out, "dogs")
    assert done.returncode == 1 and done.stdout == "" and 'no document has "dogs" in its name' in done.stderr


def test_neighbors_remove_only_what_they_made(docs, tmp_path):
    out, file = tmp_path / "collection", tmp_path / "out/neighbors"
    assert build(out, docs).returncode == 0
    file.parent.mkdir()
    file.write_bytes(b"an earlier one")
    limit = ["prlimit", "--fsize=64"]  # SIGXFSZ is ignored by the shell, so that the write fails
    command = ["sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh", *limit, INDEX, "neighbors", out, "--out", file]
    failed = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert failed.returncode == 1 and "File too large" in failed.stderr
    assert file.read_bytes() == b"an earlier one" and os.listdir(file.parent) == ["neighbors"]
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    failed = run("neighbors", out, "--out", full)
    assert failed.returncode == 1 and "No space left on device" in failed.stderr
    assert full.is_symlink() and pathlib.Path("/dev/full").is_char_device()
    link = tmp_path / "link"
    link.symlink_to(file)
    assert run("neighbors", out, "--out", link).returncode == 0
    assert link.is_symlink() and file.read_bytes().startswith(b"RETRONBR") and os.listdir(file.parent) == ["neighbors"]
    piped = subprocess.run([INDEX, "neighbors", out, "--out", "/dev/stdout"], capture_output=True, timeout=60)
    assert piped.returncode == 0 and piped.stdout.startswith(file.read_bytes())


def test_output_that_cannot_be_written_is_an_error(docs, tmp_path):
    out = tmp_path / "collection"
    assert build(out, docs).returncode == 0
    for command in (["stats", out], ["list", out], ["search", out, "cat"], ["verify", out], ["extract", docs / "cats.md"],
                    ["build", "--out", out, *MODEL, docs]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([INDEX, *command], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        assert done.returncode == 1 and "standard output" in done.stderr, command
        assert done.stderr.splitlines()[-1].endswith("No space left on device")


def test_other_encodings(docs, tmp_path):
    text = "# Gewöhnliche Überschrift\n\nDie Katze schläft den ganzen Tag auf dem Sofa 😀 und schnurrt.\n"
    (docs / "little.md").write_bytes(b"\xff\xfe" + text.encode("utf-16-le"))
    (docs / "big.md").write_bytes(b"\xfe\xff" + ("Zweitens: " + text).encode("utf-16-be"))
    (docs / "page.html").write_bytes(("\ufeff<html><head><meta charset=utf-16><title>Tür</title></head><body><p>Die Tür ist "
                                      "zu und bleibt es auch.</p></body></html>").encode("utf-16-le"))
    (docs / "latin.txt").write_bytes(text.replace("😀", "").encode("latin-1"))
    (docs / "unmarked.txt").write_bytes(text.encode("utf-16-le"))
    out = tmp_path / "collection"
    done = build(out, docs)
    assert done.returncode == 0 and "9 documents" in done.stdout and "1 copies" in done.stdout
    assert re.search(r"note: .*latin.txt: not UTF-8, read as Windows-1252", done.stderr)
    assert run("extract", docs / "latin.txt").stdout == text.replace("😀", "")
    assert re.search(r"note: .*unmarked.txt: no byte order mark, read as UTF-16, little endian", done.stderr)
    assert run("extract", docs / "unmarked.txt").stdout == text
    assert run("extract", docs / "little.md").stdout == text
    assert run("extract", docs / "page.html").stdout.startswith("Die Tür ist zu")
    assert "schläft den ganzen Tag auf dem Sofa 😀" in run("search", out, "Katze").stdout
    assert "docs/page.html  Tür" in run("list", "--long", out).stdout


def test_damaged_text_is_text(docs, tmp_path):
    """A text with a damaged character is added and built alike, and both say what they did."""
    (docs / "cut.txt").write_bytes("Die Tür ist zu, und der Schlüssel ist weg. ".encode() * 10 + b"T\xc3")
    out = tmp_path / "collection"
    done = build(out, docs)
    assert done.returncode == 0 and re.search("note: .*cut.txt: characters are damaged; each became U.FFFD", done.stderr)
    (docs / "more.txt").write_bytes("Übrigens: ".encode() + (docs / "cut.txt").read_bytes())
    done = run("add", out, docs / "more.txt")
    assert done.stdout.startswith("added ") and "more.txt: characters are damaged" in done.stderr
    texts = [run("show", out, i).stdout for i in run("list", out).stdout.split()]
    assert sum(text.endswith("weg. T\ufffd") for text in texts) == 2, texts


def has_terminals():
    """A chroot without devpts has no pseudo-terminals."""
    try:
        for end in os.openpty():
            os.close(end)
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_terminals(), reason="there are no pseudo-terminals")
def test_progress_within_a_large_file(docs, tmp_path):
    """Files are not equal: one that is most of the text does not jump from its beginning to its end."""
    (docs / "zz.txt").write_text(" ".join(f"The number {i} is followed by {i + 1}." for i in range(9000)))
    command = [INDEX, "build", "--out", tmp_path / "collection", *MODEL, docs]
    seen = subprocess.run(["script", "-qec", " ".join(f"'{c}'" for c in command), "/dev/null"], capture_output=True,
                          text=True, timeout=300, stdin=subprocess.DEVNULL).stdout
    shares = [int(n) for n in re.findall(r"\] +(\d+) %", seen)]
    assert shares == sorted(shares) and shares[-1] == 100, shares
    assert max(b - a for a, b in zip(shares, shares[1:])) <= 34, shares


@pytest.mark.skipif(not has_terminals(), reason="there are no pseudo-terminals")
def test_colors_on_terminals_only(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"x")

    def shown(**environment):
        return subprocess.run(["script", "-qec", f"'{INDEX}' extract '{tmp_path}/a.bin'", "/dev/null"], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=60, env={**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, **environment}).stdout

    assert shown(TERM="xterm").startswith("\x1b[31mretro-index\x1b[0m extract: ")
    for plain in (shown(TERM="dumb"), shown(TERM="xterm", NO_COLOR="1"), run("extract", tmp_path / "a.bin").stderr):
        assert plain.startswith("retro-index extract: ") and "\x1b" not in plain


def test_json_of_every_command(docs, tmp_path):
    """Standard output is an object a line."""
    out, lines = tmp_path / "collection", lambda done: [json.loads(line) for line in done.stdout.splitlines()]
    dry = lines(run("build", "--dry-run", "--json", docs))
    assert dry[-1]["documents"] == len(dry) - 1 > 1 and set(dry[0]) == {"path", "title", "bytes"}
    built, = lines(build(out, docs, "--json"))
    assert built["effect"] == "built" and built["documents"] == dry[-1]["documents"] and built["chunks"] == int(stats(out)["chunks"])
    extracted, = lines(run("extract", "--json", next(docs.glob("*.md"))))
    assert extracted["part"] == "" and extracted["text"]
    said, = lines(run("neighbors", "--json", "--out", tmp_path / "n", "-k", 2, out))
    assert said == {"file": str(tmp_path / "n"), "k": 2, "queries": built["chunks"]}


def test_other_tokenizer_is_refused(docs, tmp_path):
    out = tmp_path / "collection"
    assert build(out, docs).returncode == 0
    done = run("verify", out, "--set", f"model.path={DEPS / 'minilm'}")
    assert done.returncode == 1 and "another tokenizer" in done.stderr


def test_usage():
    for arguments, message in [((), "a command is missing"), (("nonsense",), "unknown command"),
                               (("build",), "--out DIR"), (("search", "x"), "search DIR"), (("search", "x", ""), "is empty"),
                               (("search", "x", "y", "-k", "0"), "1 .. 1000"),
                               (("build", "--chunk-length", "4x", "--out", "a", "b"), "--chunk-length 4x"),
                               (("build", "--set", "retrieval.embeder=x", "--out", "a", "b"), "retrieval.embedder"),
                               (("stats", "/nonexistent"), "not a collection")]:
        done = run(*arguments)
        assert done.returncode == 1 and message in done.stderr, (arguments, done.stderr)
    for arguments in (["--help"], ["help"]):
        done = run(*arguments)
        assert done.returncode == 0 and "usage: retro-index COMMAND" in done.stdout
    for arguments in (["help", "search"], ["search", "--help"]):
        done = run(*arguments)
        assert done.returncode == 0 and done.stdout.startswith("usage: retro-index search ")
    done = run("help", "nonsense")
    assert done.returncode == 1 and 'unknown command "nonsense"' in done.stderr
    assert re.match(r"retro-index \d+\.\d+\.\d+ \(", run("--version").stdout)


def test_long_options(docs, tmp_path):
    done = build(tmp_path / "c", docs, "--max-file-bytes", 60)
    assert done.returncode == 2 and "the limit is 60" in done.stderr
    assert build(tmp_path / "d", docs / "sub/missing.txt").returncode == 1
