"""tests/milvus/fake.py: a small Milvus: the calls that this project makes, in memory and in a log, by gRPC.

    python3 tests/milvus/fake.py PORT LOG [TOKEN]

It does what Milvus 2.3.5 does as far as our tests ask; `make milvus-test` runs the same tests with the real one.
"""

import base64
import json
import pathlib
import pickle
import re
import socket
import sys
import threading

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import http2  # noqa: E402
import wire  # noqa: E402
from wire import field, one, read, text  # noqa: E402

INT64, VARCHAR, JSON, FLOAT_VECTOR = 5, 21, 23, 101


class Refused(Exception):
    """The server's words and code."""

    def __init__(self, words, code=65535, old=1):
        super().__init__(words)
        self.status = field(1, old) + field(2, words) + field(3, code)


class Absent:
    """What an expression finds under a name that an object does not have: no comparison with it holds."""

    def __eq__(self, other):
        return False

    __lt__ = __le__ = __gt__ = __ge__ = __eq__


class Labels(dict):
    def __missing__(self, name):
        return Absent()


def any_in(values, wanted):
    return not isinstance(values, Absent) and any(w in values for w in wanted)


def like(value, pattern):
    assert pattern.endswith("%") and "%" not in pattern[:-1]
    return value.startswith(pattern[:-1])


def compile_expression(expression):
    if not expression:
        return lambda row: True
    source = expression.replace("&&", " and ").replace("||", " or ").replace("json_contains_any", "any_in")
    source = re.sub(r'(\w+) like ("[^"]*")', r"like(\1, \2)", source)
    code = compile(source, "expression", "eval")
    return lambda row: eval(code, {"any_in": any_in, "like": like}, row)


class Collection:
    def __init__(self, schema):
        self.schema = read(schema)
        self.types = {}
        for raw in self.schema[4]:
            column = read(raw)
            self.types[text(column, 2)] = one(column, 5, 0), {
                text(read(p), 1): text(read(p), 2) for p in column.get(6, [])}
        self.rows = {}
        self.loaded = False

    def find(self, expression):
        holds = compile_expression(expression)
        return [row for row in list(self.rows.values()) if holds(row)]


class Milvus:
    def __init__(self, log, token):
        self.collections, self.clock = {}, 1000
        self.lock = threading.RLock()
        self.token = token and base64.b64encode(token.encode()).decode()
        self.log = None
        if pathlib.Path(log).exists():
            with open(log, "rb") as f:
                self.replay(f)
        self.log = open(log, "ab")

    def replay(self, f):
        while True:
            try:
                method, body = pickle.load(f)
            except (EOFError, pickle.UnpicklingError):
                return
            getattr(self, method)(read(body), body)

    def keep(self, method, body):
        if self.log:
            pickle.dump((method, body), self.log)
            self.log.flush()

    def answer(self, headers, body):
        if self.token and headers.get("authorization") != self.token:
            return b"", 16, "auth check failure, please check the token"
        method = headers[":path"].split("/")[-1]
        message = read(body[5:])
        try:
            with self.lock:
                return (getattr(self, method)(message, body[5:]),)
        except Refused as e:
            whole = method in ("CreateCollection", "CreateIndex", "LoadCollection", "DropCollection")
            return (e.status if whole else field(1, e.status),)

    def collection(self, message, number=3):
        name = text(message, number)
        if name not in self.collections:
            raise Refused(f"can't find collection[database=default][collection={name}]", 100, 4)
        return self.collections[name]

    # Collections.

    def HasCollection(self, message, body):
        return field(1, b"") + field(2, text(message, 3) in self.collections)

    def CreateCollection(self, message, body):
        self.collections[text(message, 3)] = Collection(one(message, 4))
        self.keep("CreateCollection", body)
        return b""

    def DropCollection(self, message, body):
        self.collections.pop(text(message, 3), None)
        self.keep("DropCollection", body)
        return b""

    def CreateIndex(self, message, body):
        self.collection(message)
        return b""

    def LoadCollection(self, message, body):
        self.collection(message).loaded = True
        self.keep("LoadCollection", body)
        return b""

    def GetLoadState(self, message, body):
        return field(1, b"") + field(2, 3 if self.collection(message, 2).loaded else 1)

    def DescribeCollection(self, message, body):
        c = self.collection(message)
        return field(1, b"") + field(2, field(1, text(message, 3)) + field(2, one(c.schema, 2)))

    # Rows.

    def Upsert(self, message, body):
        c, n, columns = self.collection(message), one(message, 7, 0), {}
        for raw in message[5]:
            column = read(raw)
            columns[text(column, 2)] = self.values(c, column)
        assert set(columns) == set(c.types) and all(len(v) == n for v in columns.values())
        for i in range(n):
            row = {name: values[i] for name, values in columns.items()}
            c.rows[row["key"]] = row
        self.keep("Upsert", body)
        return self.mutated()

    def values(self, c, column):
        name = text(column, 2)
        kind, limits = c.types[name]
        if kind == FLOAT_VECTOR:
            vectors = read(one(column, 4))
            dim = one(vectors, 1)
            if dim != int(limits["dim"]):
                raise Refused(f"the dim ({dim}) of field data({name}) is not equal to schema dim ({limits['dim']})", 1100)
            data = one(read(one(vectors, 2)), 1)
            return list(np.frombuffer(data, "<f4").reshape(-1, dim))
        scalars = read(one(column, 3))
        if kind == INT64:
            return wire.numbers(read(one(scalars, 3)), 1)
        if kind == JSON:
            return [Labels(json.loads(v)) for v in read(one(scalars, 9)).get(1, [])]
        texts = [v.decode() for v in read(one(scalars, 6)).get(1, [])]
        for value in texts:
            if len(value.encode()) > int(limits["max_length"]):
                raise Refused(f"the length ({len(value.encode())}) of string exceeds max length ({limits['max_length']})", 1100)
        return texts

    def mutated(self):
        self.clock += 1
        return field(1, b"") + field(9, self.clock)

    def Delete(self, message, body):
        c = self.collection(message)
        for row in c.find(text(message, 5)):
            del c.rows[row["key"]]
        self.keep("Delete", body)
        return self.mutated()

    def Query(self, message, body):
        c = self.collection(message)
        rows = c.find(text(message, 4))
        names = [v.decode() for v in message.get(5, [])]
        if names == ["count(*)"]:
            scalars = field(3, field(3, field(1, wire.varint(len(rows)))))
            return field(1, b"") + field(2, field(1, INT64) + field(2, names[0]) + scalars)
        limits = [text(read(p), 2) for p in message.get(9, []) if text(read(p), 1) == "limit"]
        rows = sorted(rows, key=lambda row: row["key"])[:int(limits[0]) if limits else None]
        # Milvus gives the primary key unasked.
        return field(1, b"") + b"".join(field(2, self.column(c, n, rows)) for n in dict.fromkeys([*names, "key"]))

    def column(self, c, name, rows):
        kind, limits = c.types[name]
        values = [row[name] for row in rows]
        out = field(1, kind) + field(2, name)
        if kind == FLOAT_VECTOR:
            data = b"".join(v.astype("<f4").tobytes() for v in values)
            return out + field(4, field(1, int(limits["dim"])) + field(2, field(1, data)))
        if kind == INT64:
            return out + field(3, field(3, field(1, b"".join(wire.varint(v) for v in values))))
        if kind == JSON:
            return out + field(3, field(9, b"".join(field(1, json.dumps(v)) for v in values)))
        return out + field(3, field(6, b"".join(field(1, v) for v in values)))

    def scores(self, scores):
        return np.array(scores, "<f4").tobytes()

    def Search(self, message, body):
        c = self.collection(message)
        parameters = {text(read(p), 1): text(read(p), 2) for p in message[9]}
        k = int(parameters["topk"])
        json.loads(parameters["params"])
        if not 1 <= k <= 16384:
            raise Refused(f"topk [{k}] is invalid, it should be in range [1, 16384]", 65535)
        rows = c.find(text(message, 5))
        vectors = read(read(one(message, 6))[1][0])[3]
        matrix = np.array([row["vector"] for row in rows], "<f4")
        found, scores, counts = [], [], []
        for vector in vectors:
            similar = matrix @ np.frombuffer(vector, "<f4") if rows else np.zeros(0, "<f4")
            order = np.argsort(-similar, kind="stable")[:k]
            found += [rows[i] for i in order]
            scores += [float(similar[i]) for i in order]
            counts.append(len(order))
        names = [v.decode() for v in message.get(8, [])]
        result = field(1, len(vectors)) + field(2, k) + field(4, self.scores(scores))
        result += field(6, b"".join(wire.varint(n) for n in counts))
        if found:
            result += b"".join(field(3, self.column(c, name, found)) for name in names)
        return field(1, b"") + field(2, result)


def serve(port, milvus):
    listener = socket.create_server(("127.0.0.1", port), backlog=64)
    print("ready", flush=True)

    def run(sock):
        try:
            http2.Connection(sock, milvus.answer).run()
        except (OSError, ValueError):
            pass
        finally:
            sock.close()

    while True:
        sock, _ = listener.accept()
        threading.Thread(target=run, args=(sock,), daemon=True).start()


if __name__ == "__main__":
    serve(int(sys.argv[1]), Milvus(sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None))
