"""The package that `make deb` made, installed by apt on a bare Debian 12 (a chroot, so no systemctl): what lies where,
the service by its unit's own command line, what its hardening would refuse, upgrades, removal. Needs root.

With RETRO_ARCH it is the package that `make deb ARCH=` made for another architecture, on a Debian of that architecture:
the kernel begins each of its programs in qemu-user. That has no filters of system calls, which parsers of foreign files
need: they run once on a machine that qemu-system emulates."""
import configparser
import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import time

import pytest

import emulated

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/index"))
import make_files  # noqa: E402

BUILD = (ROOT / os.environ.get("RETRO_BUILD", "build")).resolve()
ARCH = os.environ.get("RETRO_ARCH", "")
FOLDER = BUILD / (f"deb-{ARCH}" if ARCH else "deb")
# A minute of this machine's own is ten where each instruction is translated.
PATIENCE = 10 if ARCH else 1
PROGRAMS = ["retro-server", "retro-index", "retro-eval", "retro-bench", "retro-convert"]
UNIT = "usr/lib/systemd/system/retro-server.service"
EXPOSURE = 2.5
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for chroot")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


class Unit(configparser.RawConfigParser):
    """A unit file; options that stand several times are lists of lines."""

    optionxform = staticmethod(str)

    def __init__(self, path):
        super().__init__(strict=False)
        self.read(path)


class Machine:
    def __init__(self, folder):
        self.folder = folder
        # What comes from the machine below is mounted, and gone at the end.
        self.mounts = ["proc", "dev"]
        subprocess.run(["mount", "-t", "proc", "proc", folder / "proc"], check=True)
        subprocess.run(["mount", "--bind", "/dev", folder / "dev"], check=True)

    def close(self):
        for name in reversed(self.mounts):
            subprocess.run(["umount", "-l", self.folder / name], check=True)

    def command(self, *words):
        variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", "HOME": "/"}
        proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
        settings = [f"{name}={value}" for name, value in {**variables, **proxies}.items()]
        return ["chroot", self.folder, "env", "-i", *settings, *words]

    def run(self, *words, check=True):
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=900 * PATIENCE)
        assert not check or done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done

    def install(self, deb):
        shutil.copy(deb, self.folder / "tmp/x.deb")
        return self.run("apt-get", "install", "-y", "-q", "--no-install-recommends", "--reinstall",
                        "-o", "Dpkg::Options::=--force-confdef", "/tmp/x.deb")

    def path(self, name):
        return self.folder / name


@pytest.fixture(scope="session")
def deb():
    found = sorted(FOLDER.glob(f"retro-server_*_{ARCH}*.deb"))
    assert len(found) == 1, f"make deb ARCH={ARCH} makes it"
    print(f"{found[0].name}: {found[0].stat().st_size / 1e6:.1f} MB")
    return found[0]


@pytest.fixture(scope="session")
def bare():
    folder = FOLDER / "bare"
    subprocess.run([ROOT / "tests/deb/bare.sh", folder, *filter(None, [ARCH])], check=True)
    return folder


@pytest.fixture(scope="session")
def machine(bare, deb):
    """A copy of the bare system with the package and nothing else installed."""
    folder = FOLDER / "machine"
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(["cp", "-a", bare, folder], check=True)
    machine = Machine(folder)
    try:
        machine.run("apt-get", "update", "-q")
        machine.install(deb)
        # Beside what else runs on this machine: the address that the package comes with may be taken.
        config = machine.path("etc/retro-server/retro.json")
        assert '"port": 8080' in config.read_text()
        config.write_text(config.read_text().replace("8080", str(free_port())))
        yield machine
    finally:
        machine.close()
        shutil.rmtree(folder)


class Service:
    """The unit's ExecStart as its user, with its socket for notifications. The words `root` stand before what changes the
    user, the words `user` behind it."""

    def __init__(self, machine, root=(), user=()):
        unit = Unit(machine.path(UNIT))["Service"]
        self.port = json.loads(machine.path("etc/retro-server/retro.json").read_text())["server"]["port"]
        self.log = machine.path("tmp/service.log")
        notify = machine.path("tmp/notify")
        notify.unlink(missing_ok=True)
        change = ["setpriv", f"--reuid={unit['User']}", f"--regid={unit['Group']}", "--clear-groups", "--no-new-privs",
                  "--bounding-set=-all", "--inh-caps=-all"]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, self.log.open("w") as out:
            manager.bind(str(notify))
            notify.chmod(0o777)
            manager.settimeout(120 * PATIENCE)
            words = ["env", "NOTIFY_SOCKET=/tmp/notify", *root, *change, *user, *unit["ExecStart"].split()]
            self.process = subprocess.Popen(machine.command(*words), stdout=out, stderr=out)
            try:
                assert manager.recv(100) == b"READY=1"
            except TimeoutError:
                raise AssertionError(self.log.read_text())

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120 * PATIENCE)
        connection.request(method, path, json.dumps(body) if body else None)
        reply = connection.getresponse()
        text = reply.read()
        connection.close()
        assert reply.status == 200, text
        return text

    def stop(self):
        self.process.terminate()
        return self.process.wait(60 * PATIENCE)


def test_apt_installs_it(machine):
    for name in PROGRAMS:
        assert machine.run(name, "--help").stdout
        linked = machine.run("ldd", f"/usr/bin/{name}").stdout
        assert "not found" not in linked, linked
    for path in ("usr/share/man/man1/retro-index.1.gz", "usr/share/man/man5/retro.json.5.gz", UNIT,
                 "usr/share/bash-completion/completions/retro-index", "usr/share/zsh/vendor-completions/_retro-index",
                 "usr/share/fish/vendor_completions.d/retro-index.fish", "usr/share/doc/retro-server/docs/operating.md"):
        assert machine.path(path).is_file(), path
    collection = machine.run("stat", "-c", "%U:%G %a", "/var/lib/retro-server/collection").stdout
    assert collection == "retro-server:retro-server 750\n"
    assert "/etc/retro-server/retro.json" in machine.run("dpkg-query", "-W", "-f", "${Conffiles}", "retro-server").stdout


def test_libraries_are_for_every_processor(machine):
    """The linker takes the build for newer processors where the processor is one; both make and search a collection."""
    folder = machine.path("usr/lib/retro-server")
    newer = os.uname().machine == "x86_64" and not ARCH
    builds = [folder, folder / "glibc-hwcaps/x86-64-v3"] if newer else [folder]
    for build in builds:
        linked = machine.run("ldd", f"/{(build / 'libfaiss_c.so').relative_to(machine.folder)}").stdout
        assert "not found" not in linked
    if newer:
        code = subprocess.run(["objdump", "-d", folder / "libfaiss.so"], capture_output=True, text=True, check=True).stdout
        assert not re.search(r"%[yz]mm", code), "the first build has vector registers of newer processors"


def test_make_passes_over_the_system(bare):
    """Programs of Debian are named as compilers name lists of headers."""
    assert list(bare.glob("usr/sbin/*.d"))
    done = subprocess.run(["make", "-C", ROOT, "-n", f"BUILD={BUILD}", "lint"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_lintian_is_content():
    log = (FOLDER / "lintian.log").read_text()
    assert not re.findall(r"^[EW]: .*", log, re.MULTILINE)


def test_the_unit_is_hardened(machine):
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", machine.path(UNIT)],
                          capture_output=True, text=True)
    exposure = float(re.search(r"Overall exposure level for .*: ([0-9.]+)", done.stdout)[1])
    print(f"exposure {exposure}")
    assert exposure < EXPOSURE, done.stdout


def test_the_service_answers(machine):
    machine.run("retro-server", "--config", "/etc/retro-server/retro.json", "--check-config")
    service = Service(machine)
    try:
        reply = json.loads(service.ask("POST", "/v1/completions", {"prompt": "The fork() system call", "max_tokens": 8}))
        assert reply["choices"][0]["text"]
        assert b"<title>" in service.ask("GET", "/")
        status = pathlib.Path(f"/proc/{service.process.pid}/status").read_text()
        assert "CapEff:\t0000000000000000" in status and not re.search(r"^Uid:\t0", status, re.MULTILINE)
    finally:
        code = service.stop()
    assert code == 0, service.log.read_text()


@pytest.mark.parametrize("processor, kernels", [("cortex-a53", "neon"), ("cortex-a76", "dotprod"), ("max", "bf16")])
@pytest.mark.skipif(ARCH != "arm64", reason="qemu-user is another processor when it is told so")
def test_kernels_are_the_processors(machine, processor, kernels):
    """The first processor has nothing that Arm's first 64-bit ones had not; FAISS runs on it, too."""
    chosen = ["env", f"QEMU_CPU={processor}"]
    service = Service(machine, root=chosen)
    try:
        assert service.ask("POST", "/v1/completions", {"prompt": "The", "max_tokens": 2})
    finally:
        assert service.stop() == 0
    assert f" backend cpu {kernels}, " in service.log.read_text()
    words = ["retro-bench", "index", "--vectors", "4000", "--dims", "64", "--index", "ivf", "--threads", "1"]
    assert "index.recall" in machine.run(*chosen, *words).stdout


def test_bench_names_the_kernels(machine):
    """With 512 MiB that are read and 84 million steps of arithmetic it is the slowest test of those that are emulated."""
    told = machine.run("retro-bench", "roofline", "--threads", "1").stdout
    assert re.search(r"^this machine, 1 thread, \w+ kernels$", told, re.MULTILINE), told


def system_calls(*filters):
    """The names in the sets of system calls that a unit may name."""
    names = set()
    for line in filters:
        shown = subprocess.run(["systemd-analyze", "syscall-filter", line], capture_output=True, text=True, check=True).stdout
        for word in shown.split("\n")[1:]:
            word = word.strip()
            if word.startswith("@"):
                names |= system_calls(word)
            elif word and not word.startswith("#"):
                names.add(word)
    return names


def wait_for(condition):
    deadline = time.monotonic() + 60 * PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture
def traced(machine):
    """How Service starts with its system calls in tmp/calls: strace traces no program that is emulated, which the emulator
    does itself."""
    if ARCH:
        return {"user": ["env", "QEMU_STRACE=1", "QEMU_LOG_FILENAME=/tmp/calls"]}
    machine.run("apt-get", "install", "-y", "-q", "--no-install-recommends", "strace")
    # -D: the process that is known here is the server, not strace.
    return {"root": ["strace", "-D", "-f", "-q", "-o", "/tmp/calls"]}


def test_no_system_call_would_be_refused(machine, traced):
    """Without a service manager the unit's filter is not in force: what the server asks of the kernel is compared."""
    calls = machine.path("tmp/calls")
    service = Service(machine, **traced)
    try:
        service.ask("POST", "/v1/completions", {"prompt": ["The"] * 4, "max_tokens": 8})
        service.ask("GET", "/metrics")
    finally:
        assert service.stop() == 0
    if not ARCH:
        end = f"{service.process.pid} +++ exited with 0 +++"
        wait_for(lambda: end in re.sub(" +", " ", calls.read_text()))
    unit = machine.path(UNIT).read_text()
    used = set(re.findall(r"\b\d+ +([a-z]\w*)\(", calls.read_text(errors="replace")))
    # What changes the user is setpriv's, before the program begins.
    used -= {"setresuid", "setresgid", "setgroups", "capset", "prctl"}
    allowed = system_calls(*re.findall(r"^SystemCallFilter=(@\S+)", unit, re.MULTILINE))
    allowed |= set(" ".join(re.findall(r"^SystemCallFilter=([a-z].*)$", unit, re.MULTILINE)).split())
    refused = system_calls(*re.findall(r"^SystemCallFilter=~(@\S+)", unit, re.MULTILINE))
    assert used & {"accept4", "epoll_wait", "epoll_pwait"}, used
    assert used <= allowed - refused, used - (allowed - refused)


def test_a_collection_in_the_default_folder(machine):
    """With the embedder of the tests, as the operator's page says; of the page one line alone where it is emulated, as each
    chunk takes seconds there."""
    deps = pathlib.Path(os.environ.get("RETRO_DEPS", pathlib.Path.home() / ".cache/retro-server"))
    shutil.copytree(deps / "minilm", machine.path("var/lib/retro-server/embedder"), dirs_exist_ok=True)
    machine.run("chown", "-R", "retro-server:", "/var/lib/retro-server/embedder")
    page = machine.path("usr/share/doc/retro-server/docs/operating.md")
    if ARCH:
        line = next(line for line in page.read_text().splitlines() if "systemctl stop" in line)
        page = machine.path("var/lib/retro-server/operating.md")
        page.write_text(line)
    config = machine.path("etc/retro-server/retro.json")
    before = config.read_text()
    options = json.loads(before)
    options["retrieval"] = {"collection": "/var/lib/retro-server/collection", "embedder": "/var/lib/retro-server/embedder"}
    config.write_text(json.dumps(options))
    user = ["setpriv", "--reuid=retro-server", "--regid=retro-server", "--clear-groups"]
    machine.run(*user, "retro-index", "build", "--out", "/var/lib/retro-server/collection", "--config",
                "/etc/retro-server/retro.json", f"/{page.relative_to(machine.folder)}")
    service = Service(machine)
    try:
        reply = json.loads(service.ask("POST", "/v1/completions", {"prompt": "systemctl stop sends", "max_tokens": 4}))
        assert "operating.md" in json.dumps(reply["retrieval"])
    finally:
        assert service.stop() == 0
        config.write_text(before)


# Words of each file that tests/index makes.
PARSED = {"book.docx": "Heat the oven to 200 degrees.", "book.odt": "A spade,", "talk.pptx": "Sales doubled.",
          "whales.epub": "Call me Ishmael.", "paper.pdf": "Page three tells of pears.", "letter.eml": "forwarded",
          "table.tsv": "b: 2", "all.tar.gz": "feathered", "all.zip": "buried treasure"}


@pytest.mark.skipif(ARCH != "arm64", reason="on this machine tests/index reads the files, and more of them")
def test_parsers_are_confined_by_an_arm_kernel(machine, tmp_path):
    """A system call that is missing in the parsers' lists on this architecture ends a parser, and its file is skipped."""
    machine.run("apt-get", "install", "-y", "-q", "--no-install-recommends", "libgmime-3.0-0", "libpoppler-glib8", "mandoc")
    make_files.write(machine.path("var/lib/retro-server/files"), make_files.good())
    user = "setpriv --reuid=retro-server --regid=retro-server --clear-groups --no-new-privs"
    lines = [f"{user} retro-server --config /etc/retro-server/retro.json --check-config || exit 1",
             "cd /var/lib/retro-server/files",
             f"for name in {' '.join(PARSED)}; do echo; echo \"file $name\"; {user} retro-index extract $name; done",
             f"echo; echo file page; {user} retro-index extract /usr/share/man/man1/retro-index.1.gz | head -20; true"]
    said = emulated.run_script(machine, tmp_path, "\n".join(lines), 900 * PATIENCE)
    print(said)
    assert "Landlock" in said
    texts = dict(re.findall(r"^file (\S+)\n(.*?)(?=^file |^exit code)", said, re.MULTILINE | re.DOTALL))
    for name, words in PARSED.items():
        assert words in texts[name], (name, texts[name])
    assert "retro-index" in texts["page"]


def test_an_upgrade_keeps_what_the_operator_changed(machine, deb):
    config = machine.path("etc/retro-server/retro.json")
    changed = config.read_text()
    assert '"port": 8080' not in changed
    machine.install(deb)
    assert config.read_text() == changed


def test_removal_leaves_the_operators_files(machine):
    """The last of all: programs go, the configuration goes with a purge, collections stay."""
    machine.run("apt-get", "remove", "-y", "-q", "retro-server")
    assert not machine.path("usr/bin/retro-server").exists() and machine.path("etc/retro-server/retro.json").exists()
    machine.run("apt-get", "purge", "-y", "-q", "retro-server")
    assert not machine.path("etc/retro-server/retro.json").exists()
    assert machine.path("var/lib/retro-server").is_dir()
