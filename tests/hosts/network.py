"""Machines that are network namespaces, joined by a switch that is a thread of this process: it holds frames back, loses
some of them, and has cables that can be pulled. The kernel needs namespaces and /dev/net/tun, and not netem. Each
machine has a host name and the address 10.99.0.NUMBER."""
import collections
import ctypes
import fcntl
import heapq
import os
import random
import select
import signal
import socket
import struct
import subprocess
import threading
import time

CLONE_NEWUTS, CLONE_NEWNET = 0x04000000, 0x40000000
TUNSETIFF, TUNSETCARRIER = 0x400454CA, 0x400454E2
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
libc = ctypes.CDLL(None, use_errno=True)


class Unavailable(Exception):
    pass


def check(result, what):
    if result != 0:
        raise Unavailable(f"{what}: {os.strerror(ctypes.get_errno())}")


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(command)}: {done.stderr.strip()}")


class Machine:
    """A process that keeps a namespace open, and this side of its cable."""

    def __init__(self, name, number):
        self.name, self.address = name, f"10.99.0.{number}"
        here, there = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            self.become(there)
        there.close()
        data, descriptors, _, _ = socket.recv_fds(here, 1000, 1)
        here.close()
        if not descriptors:
            os.waitpid(self.pid, 0)
            raise Unavailable(data.decode())
        self.tap = descriptors[0]

    def become(self, there):
        """In the child, which only waits then."""
        try:
            check(libc.unshare(CLONE_NEWNET | CLONE_NEWUTS), "unshare")
            check(libc.sethostname(self.name.encode(), len(self.name)), "sethostname")
            tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", b"eth0", IFF_TAP | IFF_NO_PI))
            run("ip", "link", "set", "lo", "up")
            run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
            run("ip", "link", "set", "eth0", "up")
            socket.send_fds(there, [b"ready"], [tap])
            os.close(tap)
            there.close()
        except (OSError, Unavailable) as e:
            there.send(str(e).encode())
            os._exit(1)
        signal.pause()
        os._exit(0)

    def command(self, *words):
        """To run something there."""
        return ["nsenter", "-t", str(self.pid), "-n", "-u", *map(str, words)]

    def cable(self, plugged):
        fcntl.ioctl(self.tap, TUNSETCARRIER, struct.pack("i", plugged))

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.tap)


class Network:
    """delay: seconds each way; loss: share of the frames; cut: pairs of machines that do not hear each other."""

    def __init__(self, *names):
        self.machines, self.delay, self.loss, self.cut = [], 0.0, 0.0, set()
        self.bytes = collections.Counter()  # of each machine
        try:
            for number, name in enumerate(names, 1):
                self.machines.append(Machine(name, number))
        except Unavailable:
            self.close_machines()
            raise
        self.random, self.ends = random.Random(1), False
        self.thread = threading.Thread(target=self.switch)
        self.thread.start()

    def switch(self):
        queue, order = [], 0
        taps = {m.tap: m for m in self.machines}
        while not self.ends:
            wait = min(0.1, max(0, queue[0][0] - time.monotonic())) if queue else 0.1
            for tap in select.select(list(taps), [], [], wait)[0]:
                order += 1
                self.take(taps[tap], queue, order)
            while queue and queue[0][0] <= time.monotonic():
                _, _, sender, frame = heapq.heappop(queue)
                self.pass_on(sender, frame)

    def take(self, sender, queue, order):
        try:
            frame = os.read(sender.tap, 65536)
        except OSError:
            return  # its cable is pulled
        if self.random.random() >= self.loss:
            self.bytes[sender.name] += len(frame)
            heapq.heappush(queue, (time.monotonic() + self.delay, order, sender, frame))

    def pass_on(self, sender, frame):
        for machine in self.machines:
            if machine is sender or {sender.name, machine.name} in map(set, self.cut):
                continue
            try:
                os.write(machine.tap, frame)
            except OSError:
                pass  # its cable is pulled, or its queue full

    def close_machines(self):
        for machine in self.machines:
            machine.close()

    def close(self):
        self.ends = True
        self.thread.join()
        self.close_machines()
