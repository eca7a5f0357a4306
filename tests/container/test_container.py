"""The image that tools/container/Containerfile makes of the package, built by buildah without a daemon: its size, and the
server in it with a read-only root, as its own user. Needs root, for chroot; the base is a Debian made here, as a test
fetches no images. With RETRO_ARCH there is an image of that architecture too, whose programs the kernel begins in
qemu-user, and one name for both."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = (ROOT / os.environ.get("RETRO_BUILD", "build")).resolve()
FOLDER = BUILD / "container"
MAX_BYTES = 320e6  # 302 MB for arm64
PORT = 8080
# Debian's names are those of images for the architectures that there are packages for.
NATIVE = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True).stdout.strip()
OTHER = os.environ.get("RETRO_ARCH", "")
PATIENCE = 10 if OTHER else 1

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for chroot")


def buildah(*words):
    command = ["buildah", "--storage-driver", "vfs", "--root", FOLDER / "store", "--runroot", FOLDER / "run", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800 * PATIENCE)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout.strip()


def make_base(arch, packages):
    """A Debian as small as the published image that it stands for."""
    bare = packages / "bare"
    subprocess.run([ROOT / "tests/deb/bare.sh", bare, arch], check=True)
    slim = FOLDER / "slim"
    shutil.rmtree(slim, ignore_errors=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", bare, slim], check=True)
    for name in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info"):
        for entry in (slim / name).glob("*"):
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    container = buildah("from", "--arch", arch, "scratch")
    buildah("add", "-q", container, slim, "/")
    shutil.rmtree(slim)
    name = f"localhost/base-{arch}"
    buildah("commit", "-q", container, name)
    buildah("rm", container)
    return name


@pytest.fixture(scope="module")
def store():
    """Everything is given back at the end."""
    yield
    shutil.rmtree(FOLDER, ignore_errors=True)


@pytest.fixture(scope="module", params=[NATIVE, *filter(None, [OTHER])])
def arch(request):
    return request.param


@pytest.fixture(scope="module")
def image(store, arch):
    """Its name; the list `retro-server` has it."""
    packages = BUILD / ("deb" if arch == NATIVE else f"deb-{arch}")
    debs = list(packages.glob(f"retro-server_*_{arch}.deb"))
    assert len(debs) == 1, "make deb makes it"
    context = FOLDER / f"context-{arch}"
    context.mkdir(parents=True, exist_ok=True)
    shutil.copy(debs[0], context)
    base, name = make_base(arch, packages), f"localhost/retro-server-{arch}"
    buildah("bud", "--platform", f"linux/{arch}", "--isolation", "chroot", "--format", "docker", "--squash", "--build-arg",
            f"BASE={base}", "--manifest", "retro-server", "-f", ROOT / "tools/container/Containerfile", "-t", name, context)
    return name


@pytest.fixture(scope="module")
def settings(image):
    return json.loads(buildah("inspect", "--type", "image", image))["Docker"]["config"]


def test_it_is_small(image):
    listed = json.loads(buildah("images", "--json", image))[0]
    size = listed["size"]
    number, unit = re.fullmatch(r"([0-9.]+) (\w+)", size).groups()
    size = float(number) * {"MB": 1e6, "GB": 1e9}[unit]
    print(f"{image}: {size / 1e6:.0f} MB")
    assert size < MAX_BYTES


def test_it_says_its_architecture(image, arch):
    told = json.loads(buildah("inspect", "--type", "image", image))
    assert (told["Docker"]["os"], told["Docker"]["architecture"]) == ("linux", arch)
    assert (told["OCIv1"]["os"], told["OCIv1"]["architecture"]) == ("linux", arch)


def test_it_runs_as_a_user_of_its_own(settings):
    assert settings["User"] == "retro-server" and settings["Healthcheck"]["Test"][0] == "CMD"
    assert settings["Volumes"] == {"/var/lib/retro-server": {}} and "8080/tcp" in settings["ExposedPorts"]


@pytest.fixture(scope="module")
def container(image):
    """Its files, with a root that cannot be written."""
    name = buildah("from", image)
    files = pathlib.Path(buildah("mount", name))
    root = FOLDER / "root"
    root.mkdir(exist_ok=True)
    mounts = [["--bind", files, root], ["-o", "remount,ro,bind", root], ["-t", "tmpfs", "tmpfs", root / "tmp"],
              ["-t", "proc", "proc", root / "proc"], ["--bind", "/dev", root / "dev"]]
    for words in mounts:
        subprocess.run(["mount", *words], check=True)
    yield root
    for mounted in (root / "tmp", root / "proc", root / "dev", root):
        subprocess.run(["umount", "-l", mounted], check=True)
    buildah("umount", name)


def inside(root, *words):
    user = ["setpriv", "--reuid=retro-server", "--regid=retro-server", "--clear-groups", "--no-new-privs", "--bounding-set=-all"]
    return ["chroot", root, "env", "-i", "PATH=/usr/bin:/bin", *user, *words]


class Network:
    """A network of its own, so that port 8080 is free; a process that waits keeps it."""

    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep infinity"],
                                       stdout=subprocess.PIPE)
        assert self.holder.stdout.readline() == b"up\n"

    def words(self, *words):
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net", *words]

    def run(self, *words):
        return subprocess.run(self.words(*words), capture_output=True, text=True, timeout=120 * PATIENCE)

    def close(self):
        self.holder.kill()
        self.holder.wait()


@pytest.fixture
def network():
    network = Network()
    yield network
    network.close()


def test_it_answers_with_a_read_only_root(container, settings, network):
    refused = subprocess.run(inside(container, "touch", "/var/lib/x", "/etc/x"), capture_output=True, text=True)
    assert "Read-only file system" in refused.stderr
    healthy = inside(container, *settings["Healthcheck"]["Test"][1:])
    assert network.run(*healthy).returncode != 0, "nothing runs yet"
    closed = network.run(*inside(container, *settings["Entrypoint"]))
    assert closed.returncode == 1 and "server.keys_file" in closed.stderr and "server.require_keys" in closed.stderr
    log = FOLDER / "server.log"
    with log.open("w") as out:
        command = inside(container, *settings["Entrypoint"], "--set", "server.require_keys=false")
        process = subprocess.Popen(network.words(*command), stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + 120 * PATIENCE
        while network.run(*healthy).returncode != 0:
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        body = json.dumps({"prompt": "The", "max_tokens": 4})
        asked = network.run("curl", "-sf", f"http://127.0.0.1:{PORT}/v1/completions", "-d", body)
        assert json.loads(asked.stdout)["choices"]
    finally:
        process.terminate()
    assert process.wait(60 * PATIENCE) == 0, log.read_text()


def test_one_name_is_for_both(store):
    """The last of all: who pulls the list gets the image of the machine's architecture."""
    listed = json.loads(buildah("manifest", "inspect", "retro-server"))["manifests"]
    assert sorted(entry["platform"]["architecture"] for entry in listed) == sorted(filter(None, [NATIVE, OTHER]))
    assert len({entry["digest"] for entry in listed}) == len(listed)
