"""tests/milvus/http2.py: as much HTTP/2 (RFC 9113) and HPACK (RFC 7541) as a gRPC server needs that libcurl calls."""

import socket
import struct

DATA, HEADERS, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 4, 6, 7, 8, 9
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

# RFC 7541 Appendix A.
NAMES = (":authority :method :method :path :path :scheme :scheme :status :status :status :status :status :status :status "
         "accept-charset accept-encoding accept-language accept-ranges accept access-control-allow-origin age allow "
         "authorization cache-control content-disposition content-encoding content-language content-length "
         "content-location content-range content-type cookie date etag expect expires from host if-match "
         "if-modified-since if-none-match if-range if-unmodified-since last-modified link location max-forwards "
         "proxy-authenticate proxy-authorization range referer refresh retry-after server set-cookie "
         "strict-transport-security transfer-encoding user-agent vary via www-authenticate").split()
VALUES = {2: "GET", 3: "POST", 4: "/", 5: "/index.html", 6: "http", 7: "https", 8: "200", 16: "gzip, deflate"}
# Appendix B: the lengths of the codes of all symbols, "A" for 0 and "a" for 26; the code is the canonical one.
LENGTHS = ("NXcccccccYecceccccccccecccccccccGKKMNGILKKILIGGGFFFGGGGGGGHIPGMKNGHHHHHHHHHHHHHHHHHHHHHHIHINTNOGPFGFGFGGGFHHG"
           "GGFGHGFFGHHHHHPLONcUWUUWWWXWXXXXXYXYYWXYXXXXVWXWXXYWVUWWXXVXWWYVWXXVVWVXWXXUWWWXWWXaaUTWXWZaaabbaYZTVabbabYVV"
           "aacbbbUYUVWVVXWWZZYYaXabaabbbbbcbbbbbae")


def make_codes():
    lengths = [ord(c) - ord("A") if c <= "Z" else ord(c) - ord("a") + 26 for c in LENGTHS]
    codes, code, before = {}, 0, 0
    for symbol in sorted(range(257), key=lambda s: (lengths[s], s)):
        code = (code + 1 if before else 0) << (lengths[symbol] - before)
        before = lengths[symbol]
        codes[before, code] = symbol
    return codes


CODES = make_codes()


def unhuffman(data):
    out, code, length = bytearray(), 0, 0
    for byte in data:
        for bit in range(7, -1, -1):
            code, length = code << 1 | byte >> bit & 1, length + 1
            symbol = CODES.get((length, code))
            if symbol is not None:
                out.append(symbol)
                code = length = 0
    return bytes(out)


class HeaderReader:
    """Decodes the blocks of one connection."""

    def __init__(self):
        self.table, self.limit = [], 4096

    def read(self, block):
        at, headers = 0, []
        while at < len(block):
            first = block[at]
            if first & 0x80:
                index, at = self.number(block, at, 7)
                headers.append(self.entry(index))
            elif first & 0xe0 == 0x20:
                self.limit, at = self.number(block, at, 5)
                self.evict()
            else:
                kept = first & 0x40
                index, at = self.number(block, at, 6 if kept else 4)
                name, at = (self.entry(index)[0], at) if index else self.text(block, at)
                value, at = self.text(block, at)
                headers.append((name, value))
                if kept:
                    self.table.insert(0, (name, value))
                    self.evict()
        return headers

    def entry(self, index):
        if index <= len(NAMES):
            return NAMES[index - 1], VALUES.get(index, "")
        return self.table[index - len(NAMES) - 1]

    def evict(self):
        while sum(len(n) + len(v) + 32 for n, v in self.table) > self.limit:
            self.table.pop()

    @staticmethod
    def number(block, at, bits):
        most = (1 << bits) - 1
        value, at, shift = block[at] & most, at + 1, 0
        if value < most:
            return value, at
        while True:
            byte, at = block[at], at + 1
            value, shift = value + ((byte & 0x7f) << shift), shift + 7
            if byte < 0x80:
                return value, at

    def text(self, block, at):
        packed = block[at] & 0x80
        size, at = self.number(block, at, 7)
        data = block[at:at + size]
        return (unhuffman(data) if packed else data).decode("latin-1"), at + size


def header(name, value):
    """A literal that nobody keeps."""
    return bytes([0, len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


class Connection:
    """Answers the calls of one client, one after another."""

    def __init__(self, sock, answer):
        self.sock, self.answer = sock, answer
        self.reader, self.calls = HeaderReader(), {}

    def receive(self, n):
        data = bytearray()
        while len(data) < n:
            piece = self.sock.recv(min(n - len(data), 1 << 20))
            if not piece:
                raise ConnectionError("the client left")
            data += piece
        return bytes(data)

    @staticmethod
    def frame(kind, flags, stream, payload=b""):
        return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload

    def send(self, *frame):
        self.sock.sendall(self.frame(*frame))

    def run(self):
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.receive(len(PREFACE)) != PREFACE:
            raise ConnectionError("no HTTP/2")
        self.send(SETTINGS, 0, 0, struct.pack(">HI", 4, 2**31 - 1))
        self.send(WINDOW_UPDATE, 0, 0, struct.pack(">I", 2**31 - 1 - 65535))
        received = 0
        while True:
            head = self.receive(9)
            size, kind, flags, stream = int.from_bytes(head[:3], "big"), head[3], head[4], int.from_bytes(head[5:], "big")
            payload = self.receive(size)
            if kind == SETTINGS and not flags & 1:
                self.send(SETTINGS, 1, 0)
            elif kind == PING and not flags & 1:
                self.send(PING, 1, 0, payload)
            elif kind == HEADERS:
                if flags & 0x20:
                    payload = payload[5:]
                self.calls[stream] = [dict(self.reader.read(payload)), bytearray()]
            elif kind == DATA:
                self.calls[stream][1].extend(payload)
                received += size
                if received > 1 << 30:
                    self.send(WINDOW_UPDATE, 0, 0, struct.pack(">I", received))
                    received = 0
            elif kind == GOAWAY:
                return
            if kind in (HEADERS, DATA) and flags & 1:
                headers, body = self.calls.pop(stream)
                self.reply(stream, *self.answer(headers, bytes(body)))

    def reply(self, stream, message, status=0, words=""):
        """In one piece, as Milvus sends it."""
        out = bytearray(self.frame(HEADERS, 4, stream, b"\x88" + header("content-type", "application/grpc")))
        body = b"\0" + struct.pack(">I", len(message)) + message
        for at in range(0, len(body), 16384):
            out += self.frame(DATA, 0, stream, body[at:at + 16384])
        out += self.frame(HEADERS, 5, stream, header("grpc-status", str(status)) + header("grpc-message", words))
        self.sock.sendall(out)
