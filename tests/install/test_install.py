"""make install: what lies where, and that a user who built nothing can run it."""
import http.client
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import tempfile
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = os.environ.get("RETRO_BUILD", "build")
PROGRAMS = ["retro-server", "retro-index", "retro-eval", "retro-bench", "retro-convert"]
NOBODY = 65534


@pytest.fixture(scope="module")
def installed():
    """DESTDIR with PREFIX /usr, where any user may read it (pytest's folders are the user's own)."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="retro-install-"))
    folder.chmod(0o755)
    command = ["make", "-C", ROOT, "install", f"BUILD={BUILD}", f"DESTDIR={folder}", "PREFIX=/usr"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    yield folder / "usr"
    shutil.rmtree(folder)


def test_what_lies_where(installed):
    for name in PROGRAMS:
        assert (installed / "bin" / name).stat().st_mode & 0o777 == 0o755
    doc = installed / "share/doc/retro-server"
    for path in ("README.md", "LICENSE", "docs/serving.md", "docs/config.md", "examples/retro.json"):
        assert (doc / path).stat().st_mode & 0o777 == 0o644, path


def test_the_unit_starts_what_was_installed(installed):
    unit = (installed / "lib/systemd/system/retro-server.service").read_text()
    assert "\nExecStart=/usr/bin/retro-server --config /etc/retro-server/retro.json\n" in unit
    for path in ("lib/sysusers.d/retro-server.conf", "lib/tmpfiles.d/retro-server.conf", "share/man/man1/retro-index.1"):
        assert (installed / path).stat().st_mode & 0o777 == 0o644, path


def test_no_program_looks_into_a_folder_of_its_builder(installed):
    for name in PROGRAMS:
        dynamic = subprocess.run(["readelf", "-d", installed / "bin" / name], capture_output=True, text=True).stdout
        folders = re.findall(r"R(?:UN)?PATH\).*\[(.*)\]", dynamic)
        assert folders, "a program without a RUNPATH finds no library beside itself"
        for folder in ":".join(folders).split(":"):
            assert folder.startswith("$ORIGIN/") or not folder.startswith(str(pathlib.Path.home())), (name, folder)
        linked = subprocess.run(["ldd", installed / "bin" / name], capture_output=True, text=True).stdout
        assert "not found" not in linked, (name, linked)
        assert "libfaiss" not in linked, (name, "is opened by the first index that needs it", linked)


def test_faiss_lies_beside_the_programs(installed):
    for library in ("libfaiss_c.so", "libfaiss.so"):
        if (ROOT / BUILD / "lib" / library).exists():
            assert (installed / "lib/retro-server" / library).is_file(), library


def test_the_example_names_only_options_that_there_are(installed):
    example = installed / "share/doc/retro-server/examples/retro.json"
    done = subprocess.run([installed / "bin/retro-server", "--config", example, "--print-config"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    for section, options in json.loads(example.read_text()).items():
        assert printed[section].items() >= options.items()


def test_what_was_not_built_is_not_installed(tmp_path):
    command = ["make", "-C", ROOT, "install", f"BUILD={tmp_path}", f"DESTDIR={tmp_path}/to"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and "run make first" in done.stderr
    assert list(tmp_path.iterdir()) == []


def as_nobody(command, **options):
    return subprocess.Popen(command, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", env={"PATH": "/usr/bin:/bin"}, **options)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_can_run_it(installed):
    # The root of a chroot may be a private folder, as may be TMPDIR; nobody gets past it, whatever lies below.
    for folder in installed.parents:
        if not folder.stat().st_mode & stat.S_IXOTH:
            pytest.skip(f"other users may not enter {folder}")
    for name in PROGRAMS:
        with as_nobody([installed / "bin" / name, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            out, err = process.communicate(timeout=60)
        assert b"error while loading" not in err and name.encode() in out + err, (out, err)

    model, log = installed.parent / "model", installed.parent / "log"
    shutil.copytree(ROOT / "models/retro-docs", model)
    for path in (model, *model.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    command = [installed / "bin/retro-server", "--set", f"model.path={model}", "--set", "server.port=0"]
    with log.open("w") as out, as_nobody(command, stderr=out) as process:
        try:
            port = wait_for_port(process, log)
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("POST", "/v1/completions", json.dumps({"prompt": "The", "max_tokens": 3}))
            reply = connection.getresponse()
            assert reply.status == 200, reply.read()
        finally:
            process.terminate()
        assert process.wait(60) == 0, log.read_text()


def wait_for_port(process, log):
    deadline = time.monotonic() + 60
    while not (found := re.search(r"listening on http://127\.0\.0\.1:(\d+)", log.read_text())):
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)
    return int(found[1])
