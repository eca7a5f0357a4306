"""tests/reading/legacy.py: makes small DOC and XLS files: OLE containers of one sector size with what the programs of before
2007 wrote into them."""

import struct

SECTOR = 512


def ole(streams):
    """Streams by name, each padded to 4096 bytes, so that none lies in the mini stream."""
    contents = [data.ljust(max(4096, -(-len(data) // SECTOR) * SECTOR), b"\0") for data in streams.values()]
    fat, starts, sectors = [], [], b""
    for data in contents:
        n = len(data) // SECTOR
        starts.append(len(fat))
        fat += [len(fat) + i + 1 for i in range(n - 1)] + [0xFFFFFFFE]
        sectors += data
    directory = len(fat)
    entries = entry("Root Entry", 5, child=1, start=0xFFFFFFFE, size=0)
    for i, (name, data) in enumerate(streams.items()):
        entries += entry(name, 2, right=i + 2 if i + 1 < len(streams) else 0xFFFFFFFF, start=starts[i], size=len(contents[i]))
    entries = entries.ljust(-(-len(entries) // SECTOR) * SECTOR, b"\0")
    n = len(entries) // SECTOR
    fat += [len(fat) + i + 1 for i in range(n - 1)] + [0xFFFFFFFE]
    n_fat = (len(fat) + 128) // 128
    places = list(range(len(fat), len(fat) + n_fat))
    fat += [0xFFFFFFFD] * n_fat
    table = struct.pack(f"<{len(fat)}I", *fat).ljust(n_fat * SECTOR, b"\xff")
    head = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 16 + struct.pack("<HHHHHHIIIIIIIIII", 0x3E, 3, 0xFFFE, 9, 6, 0, 0, 0, n_fat, directory, 0, 4096,
                                                                        0xFFFFFFFE, 0, 0xFFFFFFFE, 0)
    head += struct.pack("<109I", *(places + [0xFFFFFFFF] * (109 - n_fat)))
    return head + sectors + entries + table


def entry(name, kind, start, size, right=0xFFFFFFFF, child=0xFFFFFFFF):
    wide = name.encode("utf-16le") + b"\0\0"
    return (wide.ljust(64, b"\0") + struct.pack("<HBBIII", len(wide), kind, 1, 0xFFFFFFFF, right, child) + b"\0" * 16 + struct.pack("<I", 0) + b"\0" * 16 +
            struct.pack("<III", start, size, 0))


def doc(text, locked=False):
    """A document of Word 97 whose text is one piece of UTF-16 behind the header."""
    body = text.encode("utf-16le")
    first = 1024
    flags = 0x1000 | (0x0100 if locked else 0) | 0x0200
    head = struct.pack("<HHHHHHHIHHHII", 0xA5EC, 0xC1, 0, 0x409, 0, flags, 0xBF, 0, 0, 0, 0, first, first + len(body))
    head = head.ljust(0x4C, b"\0") + struct.pack("<I", len(text))
    pieces = struct.pack("<BI", 2, 16) + struct.pack("<II", 0, len(text)) + struct.pack("<HIH", 0, first, 0)
    head = head.ljust(0x1A2, b"\0") + struct.pack("<II", 0, len(pieces))
    return ole({"WordDocument": head.ljust(first, b"\0") + body, "1Table": pieces})


def record(kind, data):
    return struct.pack("<HH", kind, len(data)) + data


def xls(rows, locked=False):
    """A workbook of Excel 97 with one sheet."""
    lock = record(0x2F, b"\1\0" + b"\0" * 50) if locked else b""
    head = record(0x809, struct.pack("<HHHHII", 0x600, 5, 0, 0, 0, 0)) + lock + record(0x42, struct.pack("<H", 1200))
    cells = b""
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            if isinstance(value, str):
                cells += record(0x204, struct.pack("<HHHHB", i, j, 0, len(value), 1) + value.encode("utf-16le"))
            else:
                cells += record(0x203, struct.pack("<HHHd", i, j, 0, value))
    sheet = record(0x809, struct.pack("<HHHHII", 0x600, 0x10, 0, 0, 0, 0)) + cells + record(0x0A, b"")
    name = b"Sheet1"
    bound = lambda place: record(0x85, struct.pack("<IBBBB", place, 0, 0, len(name), 0) + name)
    start = len(head + bound(0) + record(0x0A, b""))
    return ole({"Workbook": head + bound(start) + record(0x0A, b"") + sheet})
