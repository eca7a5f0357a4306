"""A relay on the path between two ranks: it holds bytes back, and can stop passing any on while connections stay open, as
behind a pulled cable."""
import selectors
import socket
import threading
import time


class Relay:
    """Listens at `here` for connections that it goes on with at `there`; delay: seconds each way."""

    def __init__(self, here, there, delay=0.0):
        self.there, self.delay = there, delay
        self.cut = self.ends = False
        self.bytes = 0
        self.listener = socket.create_server(here)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.other, self.queue = {}, []
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.ends:
            for key, _ in self.selector.select(0.002):
                if key.fileobj is self.listener:
                    self.take_connection()
                else:
                    self.take_bytes(key.fileobj)
            while self.queue and not self.cut and self.queue[0][0] <= time.monotonic():
                _, to, data = self.queue.pop(0)
                self.pass_on(to, data)

    def take_connection(self):
        near, _ = self.listener.accept()
        try:
            far = socket.create_connection(self.there)
        except OSError:
            near.close()  # rank 0 does not listen yet
            return
        for one, other in ((near, far), (far, near)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.other[one] = other
            self.selector.register(one, selectors.EVENT_READ)

    def take_bytes(self, one):
        try:
            data = one.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self.selector.unregister(one)
        self.bytes += len(data)
        self.queue.append((time.monotonic() + self.delay, self.other[one], data))

    def pass_on(self, to, data):
        try:
            if data:
                to.sendall(data)
            else:
                to.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has ended

    def close(self):
        self.ends = True
        self.thread.join()
        for one in [self.listener, *self.other]:
            one.close()
