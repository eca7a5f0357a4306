"""The package that `make deb` made, installed by apt on a bare Debian 12 (a chroot, so no systemctl): what lies where,
the service by its unit's own command line, what its hardening would refuse, upgrades, removal. Needs root."""
import configparser
import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = (ROOT / os.environ.get("RETRO_BUILD", "build")).resolve()
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
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=900)
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
    found = sorted((BUILD / "deb").glob("retro-server_*.deb"))
    assert len(found) == 1, "make deb makes it"
    return found[0]


@pytest.fixture(scope="session")
def bare():
    folder = BUILD / "deb/bare"
    subprocess.run([ROOT / "tests/deb/bare.sh", folder], check=True)
    return folder


@pytest.fixture(scope="session")
def machine(bare, deb):
    """A copy of the bare system with the package and nothing else installed."""
    folder = BUILD / "deb/machine"
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
    """The unit's ExecStart as its user, with its socket for notifications."""

    def __init__(self, machine, *before):
        unit = Unit(machine.path(UNIT))["Service"]
        self.port = json.loads(machine.path("etc/retro-server/retro.json").read_text())["server"]["port"]
        self.log = machine.path("tmp/service.log")
        notify = machine.path("tmp/notify")
        notify.unlink(missing_ok=True)
        user = ["setpriv", f"--reuid={unit['User']}", f"--regid={unit['Group']}", "--clear-groups", "--no-new-privs",
                "--bounding-set=-all", "--inh-caps=-all"]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, self.log.open("w") as out:
            manager.bind(str(notify))
            notify.chmod(0o777)
            manager.settimeout(120)
            words = ["env", "NOTIFY_SOCKET=/tmp/notify", *before, *user, *unit["ExecStart"].split()]
            self.process = subprocess.Popen(machine.command(*words), stdout=out, stderr=out)
            try:
                assert manager.recv(100) == b"READY=1"
            except TimeoutError:
                raise AssertionError(self.log.read_text())

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, path, json.dumps(body) if body else None)
        reply = connection.getresponse()
        text = reply.read()
        connection.close()
        assert reply.status == 200, text
        return text

    def stop(self):
        self.process.terminate()
        return self.process.wait(60)


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
    builds = [folder, folder / "glibc-hwcaps/x86-64-v3"] if os.uname().machine == "x86_64" else [folder]
    for build in builds:
        linked = machine.run("ldd", f"/{(build / 'libfaiss_c.so').relative_to(machine.folder)}").stdout
        assert "not found" not in linked
    code = subprocess.run(["objdump", "-d", folder / "libfaiss.so"], capture_output=True, text=True, check=True).stdout
    assert not re.search(r"%[yz]mm", code), "the first build has vector registers of newer processors"


def test_lintian_is_content():
    log = (BUILD / "deb/lintian.log").read_text()
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


def test_no_system_call_would_be_refused(machine):
    """Without a service manager the unit's filter is not in force: what the server asks of the kernel is compared."""
    machine.run("apt-get", "install", "-y", "-q", "--no-install-recommends", "strace")
    calls = machine.path("tmp/calls")
    # -D: the process that is known here is the server, not strace.
    service = Service(machine, "strace", "-D", "-f", "-q", "-o", "/tmp/calls")
    try:
        service.ask("POST", "/v1/completions", {"prompt": ["The"] * 4, "max_tokens": 8})
        service.ask("GET", "/metrics")
    finally:
        assert service.stop() == 0
    deadline = time.monotonic() + 60
    while f"{service.process.pid} +++ exited with 0 +++" not in re.sub(" +", " ", calls.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    unit = machine.path(UNIT).read_text()
    used = set(re.findall(r"^\d+ +(\w+)\(", calls.read_text(), re.MULTILINE))
    # What changes the user is setpriv's, before the program begins.
    used -= {"setresuid", "setresgid", "setgroups", "capset", "prctl"}
    allowed = system_calls(*re.findall(r"^SystemCallFilter=(@\S+)", unit, re.MULTILINE))
    refused = system_calls(*re.findall(r"^SystemCallFilter=~(@\S+)", unit, re.MULTILINE))
    assert "accept4" in used or "epoll_wait" in used, used
    assert used <= allowed - refused, used - (allowed - refused)


def test_a_collection_in_the_default_folder(machine):
    """With the embedder of the tests, as the operator's page says."""
    deps = pathlib.Path(os.environ.get("RETRO_DEPS", pathlib.Path.home() / ".cache/retro-server"))
    shutil.copytree(deps / "minilm", machine.path("var/lib/retro-server/embedder"), dirs_exist_ok=True)
    machine.run("chown", "-R", "retro-server:", "/var/lib/retro-server/embedder")
    config = machine.path("etc/retro-server/retro.json")
    before = config.read_text()
    options = json.loads(before)
    options["retrieval"] = {"collection": "/var/lib/retro-server/collection", "embedder": "/var/lib/retro-server/embedder"}
    config.write_text(json.dumps(options))
    user = ["setpriv", "--reuid=retro-server", "--regid=retro-server", "--clear-groups"]
    machine.run(*user, "retro-index", "build", "--out", "/var/lib/retro-server/collection", "--config",
                "/etc/retro-server/retro.json", "/usr/share/doc/retro-server/docs/operating.md")
    service = Service(machine)
    try:
        reply = json.loads(service.ask("POST", "/v1/completions", {"prompt": "systemctl stop sends", "max_tokens": 4}))
        assert "operating.md" in json.dumps(reply["retrieval"])
    finally:
        assert service.stop() == 0
        config.write_text(before)


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
