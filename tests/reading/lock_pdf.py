"""PDF that needs a password: the standard handler's revision 2 (PDF 1.4, 3.5), which needs RC4 and MD5 alone."""
import hashlib
import re
import struct
from pathlib import Path

import scan_files

PADDING = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")
RIGHTS, NAME = -4, b"0123456789abcdef"


def rc4(key, data):
    box, j, i, out = list(range(256)), 0, 0, bytearray()
    for n in range(256):
        j = (j + box[n] + key[n % len(key)]) % 256
        box[n], box[j] = box[j], box[n]
    j = 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + box[i]) % 256
        box[i], box[j] = box[j], box[i]
        out.append(byte ^ box[(box[i] + box[j]) % 256])
    return bytes(out)


class Lock:
    def __init__(self, password):
        padded = (password.encode() + PADDING)[:32]
        self.owner = rc4(hashlib.md5((b"owner" + PADDING)[:32]).digest()[:5], padded)
        self.key = hashlib.md5(padded + self.owner + struct.pack("<i", RIGHTS) + NAME).digest()[:5]

    def lock(self, number, data):
        """The data of object `number`."""
        return rc4(hashlib.md5(self.key + struct.pack("<i", number)[:3] + b"\0\0").digest()[:10], data)

    def entry(self):
        return b"<</Filter/Standard/V 1/R 2/O<%s>/U<%s>/P %d>>" % (self.owner.hex().encode(), rc4(self.key, PADDING).hex().encode(), RIGHTS)

    def trailer(self, number):
        """Of the file whose object `number` is the entry."""
        return b"/Encrypt %d 0 R/ID[<%s><%s>]" % (number, NAME.hex().encode(), NAME.hex().encode())


class LockedPdf(scan_files.Pdf):
    """Pages of text and of pictures, whose streams are encrypted."""

    def __init__(self, password):
        super().__init__()
        self.lock = Lock(password)

    def write(self, path):
        super().write(path)
        number = len(self.objects) + 1
        objects = [re.sub(rb"(?s)(stream\n)(.*)(\nendstream)", lambda found, n=i + 1: found[1] + self.lock.lock(n, found[2]) + found[3], body)
                   for i, body in enumerate(self.objects)] + [self.lock.entry()]
        out = b"%PDF-1.5\n" + b"".join(b"%d 0 obj\n%s\nendobj\n" % (i + 1, body) for i, body in enumerate(objects))
        Path(path).write_bytes(out + b"trailer << /Size %d /Root 1 0 R %s >>\n%%%%EOF\n" % (number + 1, self.lock.trailer(number)))
        return path
