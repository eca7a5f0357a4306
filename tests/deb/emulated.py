"""A machine for arm64 with Debian's own kernel, which qemu-system emulates: it has what qemu-user has not, as filters of
system calls and Landlock. Its files are those of a folder, in memory."""
import re
import subprocess

# The first process. The last line is the script's exit code; what powers off is asked directly, as no service manager is.
INIT = """#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
sh /script 2>&1
echo "exit code $?"
echo o > /proc/sysrq-trigger
sleep 60
"""
MACHINE = ["qemu-system-aarch64", "-machine", "virt", "-cpu", "cortex-a72", "-smp", "2", "-m", "4096", "-nographic", "-no-reboot",
           "-nic", "none", "-append", "console=ttyAMA0 quiet panic=-1 rdinit=/init"]
# Nothing there reads them.
LEFT_OUT = ["./proc/*", "./dev/*", "./var/cache/apt/*", "./var/lib/apt/lists/*", "./usr/share/doc/*", "./usr/share/locale/*"]


def archive(folder, out, names):
    """Appends files of a folder, by the archive that kernels unpack; names come as find prints them."""
    subprocess.run(["cpio", "-o", "-H", "newc", "--null", "--quiet"], cwd=folder, input=names, stdout=out, check=True)


def fetch_kernel(machine, folder):
    """Debian's newest for arm64, by the folder's own apt."""
    script = "cd /tmp && apt-get download -q $(apt-cache depends linux-image-arm64 | sed -n 's/.*Depends: //p')"
    machine.run("sh", "-c", script)
    package = next(machine.path("tmp").glob("linux-image-*.deb"))
    subprocess.run(["dpkg-deb", "-x", package, folder / "kernel"], check=True)
    package.unlink()
    return next((folder / "kernel/boot").glob("vmlinuz-*"))


def run_script(machine, folder, script, seconds):
    """What sh prints of the script, as root of the machine; it has to end well. `folder` is for files of some GB."""
    kernel, files, first = fetch_kernel(machine, folder), folder / "files.cpio", folder / "first"
    first.mkdir()
    (first / "init").write_text(INIT)
    (first / "init").chmod(0o755)
    (first / "script").write_text(script)
    left_out = [word for pattern in LEFT_OUT for word in ("!", "-path", pattern)]
    names = subprocess.run(["find", ".", "-xdev", *left_out, "-print0"], cwd=machine.folder, capture_output=True, check=True).stdout
    with files.open("wb") as out:
        archive(machine.folder, out, names)
    # Kernels unpack one archive after the other.
    with files.open("ab") as out:
        archive(first, out, b"init\0script\0")
    command = [*MACHINE, "-kernel", kernel, "-initrd", files]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=seconds)
    said = done.stdout.replace("\r\n", "\n")
    assert re.search(r"^exit code 0$", said, re.MULTILINE), said[-4000:] + done.stderr[-1000:]
    return said
