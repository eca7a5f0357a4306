"""tests/milvus/servers.py: a Milvus for tests: the fake one (fake.py), or the real one that tools/deps_milvus.sh has
unpacked into the folder RETRO_MILVUS."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

HERE = pathlib.Path(__file__).parent
REAL = os.environ.get("RETRO_MILVUS")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until(holds, seconds, what):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.05)


class Fake:
    def __init__(self, folder, token=None):
        self.folder, self.port, self.token = folder, free_port(), token
        self.process = None

    def start(self):
        command = [sys.executable, HERE / "fake.py", str(self.port), self.folder / "fake.log"]
        self.process = subprocess.Popen(command + ([self.token] if self.token else []), stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"ready\n"
        return self

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
        self.process = None

    def address(self, name):
        return f"milvus://127.0.0.1:{self.port}/{name}"


class Liar(Fake):
    def start(self):
        self.tell("")
        self.process = subprocess.Popen([sys.executable, HERE / "liar.py", str(self.port), self.folder / "fake.log", self.folder / "lie"],
                                        stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"ready\n"
        return self

    def tell(self, lie):
        """What searches are answered with from now on (liar.py)."""
        (self.folder / "lie").write_text(lie)


class Real:
    """Milvus stops on SIGTERM after a minute only: it is killed. Its lease of 10 seconds lets it come back soon, and
    is not lost on a busy machine, where Milvus would end itself."""

    def __init__(self, folder, **settings):
        """settings: of the template of its configuration."""
        self.folder, self.port, self.process = folder, 19530, None
        for name in ("configs", "logs", "data"):
            (folder / name).mkdir()
        text = (pathlib.Path(REAL) / "config.yaml.template").read_text()
        given = {"local_storage_dir": folder / "data", "rocksmq_data_dir": folder / "data/rocksmq",
                 "etcd_data_dir": folder / "data/etcd", "system_log_path": folder / "logs", **settings}
        text = re.sub(r"{{ *(\w+)(?:\(\w+\))?(?:: *(.*?))? *}}", lambda m: str(given.get(m[1], m[2] or "")), text)
        text = re.sub(r"(proxy:.*?timeTickInterval:) \d+", r"\1 20", text, count=1, flags=re.S)
        text = re.sub(r"(\n +ttl:) 30\b", r"\1 10", text)
        (folder / "configs/milvus.yaml").write_text(text)
        shutil.copy(pathlib.Path(REAL) / "glog.conf", folder / "configs/glog.conf")

    def start(self):
        environment = {**os.environ, "DEPLOY_MODE": "STANDALONE", "METRICS_PORT": "9091",
                       "LD_LIBRARY_PATH": f"{REAL}/bin"}
        with open(self.folder / "milvus.out", "ab") as out:
            self.process = subprocess.Popen([f"{REAL}/bin/milvus", "run", "standalone"], cwd=self.folder, stdout=out,
                                            stderr=out, env=environment, start_new_session=True)
        wait_until(self.is_healthy, 120, f"Milvus does not start, see {self.folder}/milvus.out")
        return self

    def is_healthy(self):
        with contextlib.suppress(OSError):
            return urllib.request.urlopen("http://127.0.0.1:9091/healthz", timeout=2).read() == b"OK"
        return False

    def kill(self):
        if self.process:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process = None

    def address(self, name):
        return f"milvus://127.0.0.1:{self.port}/{name}"


def make(folder):
    return Real(folder) if REAL else Fake(folder)
