"""Ports for tests that have to name them before they are taken."""
import os
import socket

FIRST, LAST = 20000, 32000
last = FIRST + os.getpid() % 1000 * 10


def find(n):
    """The first of n ports that nobody has, one after the other, below those that the system gives away; others at each
    call."""
    global last
    while True:
        last = last + 10 if last + 10 + n < LAST else FIRST
        try:
            for port in range(last, last + n):
                with socket.socket() as s:
                    s.bind(("127.0.0.1", port))
            return last
        except OSError:
            continue
