"""tests/milvus/proxy.py: a TCP proxy that does to a server's answers what networks do: waits, cuts them off, changes
bytes. It may speak TLS, as what stands before managed servers does."""

import contextlib
import random
import socket
import ssl
import threading
import time


class Proxy:
    def __init__(self, port, certificate=None, key=None):
        self.upstream, self.context = port, None
        if certificate:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(certificate, key)
            self.context.set_alpn_protocols(["h2"])
        self.mode, self.random = "pass", random.Random(1)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.sockets, self.closed = [], False
        threading.Thread(target=self.accept, daemon=True).start()

    def address(self, name):
        return f"{'milvuss' if self.context else 'milvus'}://127.0.0.1:{self.port}/{name}"

    def turn(self, mode):
        """What becomes of bytes from now on, also those of connections that are open: "pass", "delay" (nothing comes through),
        "cut" (half of a piece comes, then the connection is closed), "corrupt" (a byte of each piece is changed)."""
        self.mode = mode

    def accept(self):
        while not self.closed:
            with contextlib.suppress(OSError):
                client, _ = self.listener.accept()
                try:
                    if self.context:
                        client = self.context.wrap_socket(client, server_side=True)
                    server = socket.create_connection(("127.0.0.1", self.upstream), timeout=5)
                except OSError:
                    client.close()
                    continue
                server.settimeout(None)
                self.sockets += [client, server]
                threading.Thread(target=self.copy, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self.copy, args=(server, client, True), daemon=True).start()

    def copy(self, source, to, answers):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                while self.mode == "delay" and not self.closed:
                    time.sleep(0.05)
                if answers and self.mode == "cut":
                    to.sendall(data[:len(data) // 2])
                    break
                if answers and self.mode == "corrupt":
                    changed = bytearray(data)
                    changed[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
                    data = bytes(changed)
                to.sendall(data)
        for s in (source, to):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()

    def drop(self):
        """Ends all connections."""
        for s in self.sockets:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.closed = True
        for s in [self.listener, *self.sockets]:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()
