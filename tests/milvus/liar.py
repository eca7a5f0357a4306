"""tests/milvus/liar.py: the small Milvus (fake.py), which answers with what is not so.

    python3 tests/milvus/liar.py PORT LOG LIE

The file LIE holds the name of the lie, and is read at each call that reads; empty: the truth is told.
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import fake  # noqa: E402


class Liar(fake.Milvus):
    def __init__(self, log, lie):
        super().__init__(log, None)
        self.file, self.lie, self.repeats = pathlib.Path(lie), "", False

    def Search(self, message, body):
        self.lie = self.file.read_text()
        if self.lie == "a large answer":
            with self.file.with_name("large").open("a") as f:
                f.write("again\n")
            return bytes(300 << 20)
        try:
            return super().Search(message, body)
        finally:
            self.lie = ""

    def Query(self, message, body):
        """Vectors of a document's chunks: of its first one, as often as there are chunks."""
        names = [v.decode() for v in message.get(5, [])]
        self.repeats = self.file.read_text() == "repeated vectors" and "vector" in names
        try:
            return super().Query(message, body)
        finally:
            self.repeats = False

    def scores(self, scores):
        numbers = {"no number": np.nan, "no end": np.inf}
        return super().scores([numbers.get(self.lie, score) for score in scores])

    def column(self, c, name, rows):
        """Chunks that their documents do not have, and documents under the ids of others."""
        if self.repeats:
            rows = rows[:1] * len(rows)
        if self.lie == "no chunk" and name in ("chunk", "chunks"):
            rows = [{**row, "chunk": 100_000, "chunks": 100_001} for row in rows]
        if self.lie == "no chunk but the first's" and name in ("chunk", "chunks"):
            rows = [*rows[:1], *({**row, "chunk": 100_000, "chunks": 100_001} for row in rows[1:])]
        if self.lie == "many chunks" and name == "chunks":
            rows = [{**row, "chunks": 1 << 26} for row in rows]
        if self.lie == "no document" and name == "document":
            rows = [{**row, "document": "of somebody else"} for row in rows]
        return super().column(c, name, rows)


if __name__ == "__main__":
    fake.serve(int(sys.argv[1]), Liar(sys.argv[2], sys.argv[3]))
