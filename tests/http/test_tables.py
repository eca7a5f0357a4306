"""/v1/tables: the tables of documents, and questions that need arithmetic, against plain Python."""
import datetime
import json
import math
import pathlib
import random
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "reading"))

from offices import docx, p, tbl, tc, tr
from mcp_messages import call as mcp_call
from test_documents import call, upload
from test_keys import bearer, keys  # noqa: F401
from workbooks import address, letters, ods, xlsx

REGIONS, BOATS = ["North", "South", "East", "West"], ["Kayak", "Canoe", "Raft, large", "Tern 1"]
HEAD = ["Order", "Region", "Boat", "Day", "Hours", "Price", "Deposit"]


def make_rows(seed, n):
    dice = random.Random(seed)
    rows = []
    for i in range(n):
        day = datetime.date(2023, 1, 1) + datetime.timedelta(days=dice.randrange(700))
        rows.append([1000 + i, dice.choice(REGIONS), dice.choice(BOATS), day, dice.randrange(1, 40),
                     round(dice.uniform(5, 900), 2), None if dice.random() < 0.2 else dice.randrange(10, 99)])
    return rows


def csv_of(rows):
    shown = lambda v: "" if v is None else f'"{v}"' if isinstance(v, str) and "," in v else str(v)
    return "\n".join(",".join(map(shown, row)) for row in [HEAD] + rows).encode() + b"\n"


FILES = {"orders.xlsx": (11, 60), "orders.ods": (12, 50), "orders.csv": (13, 40), "orders.docx": (14, 30), "orders.html": (15, 30)}


def file_of(name, rows):
    sheet = {"name": "Orders 2023", "rows": [["All orders"], [None], HEAD] + rows + [["Total", None, None, None, sum(r[4] for r in rows)]],
             "formats": {"F": '#,##0.0" EUR"', "D": "d. mmm yyyy"}}
    if name.endswith(".xlsx"):
        return xlsx([sheet, {"name": "Notes", "rows": [["Who", "Says"], ["Ann", "hello"], ["Bob", "bye"]]}])
    if name.endswith(".ods"):
        return ods([sheet])
    if name.endswith(".csv"):
        return csv_of(rows)
    shown = [["" if v is None else str(v) for v in row] for row in rows]
    if name.endswith(".docx"):
        return docx(p("All orders", "berschrift1") + tbl(tr(*HEAD, head=True), *(tr(*row) for row in shown)))
    cells = lambda tag, row: "<tr>" + "".join(f"<{tag}>{v}</{tag}>" for v in row) + "</tr>"
    return ("<h1>All orders</h1><table>" + cells("th", HEAD) + "".join(cells("td", row) for row in shown) + "</table>").encode()


@pytest.fixture(scope="module")
def tables(config, tmp_path_factory):
    """A server with a collection of all the files."""
    import shutil

    from conftest import Server

    folder = tmp_path_factory.mktemp("tables")
    copy = folder / "collection"
    shutil.copytree(json.loads(config.read_text())["retrieval"]["collection"], copy)
    running = Server(config, folder, f"retrieval.collection={copy}")
    said = upload(running, [("file", name, file_of(name, make_rows(*facts))) for name, facts in FILES.items()])
    assert [d["effect"] for d in said["data"]] == ["added"] * len(said["data"]), said
    yield running
    assert running.stop() == 0, running.log.read_text()


def ask(server, document, expect=200, headers={}, **question):
    body = json.dumps({"document": document, **question})
    reply = server.request("POST", "/v1/tables/query", body, {"Content-Type": "application/json", **headers})
    assert reply.status == expect, reply.body
    return reply.json()


OPERATORS = {"=": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
             ">": lambda a, b: a > b, ">=": lambda a, b: a >= b}


def measure(kind, values):
    values = [v for v in values if v is not None]
    if kind == "count":
        return len(values)
    if not values:
        return None
    return {"sum": math.fsum(values), "min": min(values), "max": max(values), "mean": math.fsum(values) / len(values)}[kind]


def plain(value):
    return value.isoformat() if isinstance(value, datetime.date) else value


def make_condition(dice, rows):
    column = dice.choice(["Region", "Boat", "Day", "Hours", "Price", "Deposit"])
    at = HEAD.index(column)
    value = dice.choice([r[at] for r in rows if r[at] is not None])
    if isinstance(value, str):
        if dice.random() < 0.4:
            values = dice.sample(REGIONS if column == "Region" else BOATS, 2)
            return {"column": column, "is": "in", "value": values}, lambda r: r[at] in values
        sign = dice.choice(["=", "!="])
        return {"column": column, "is": sign, "value": value.upper()}, lambda r: OPERATORS[sign](r[at], value)
    sign = dice.choice(list(OPERATORS))
    holds = lambda r: r[at] is not None and OPERATORS[sign](r[at], value)
    return {"column": column, "is": sign, "value": plain(value)}, holds


def close(left, right):
    if isinstance(left, float) or isinstance(right, float):
        return left is not None and right is not None and math.isclose(left, right, rel_tol=1e-12, abs_tol=1e-12)
    return left == right


def cells_of(text):
    """The addresses that a list of ranges names, without sheets."""
    found = set()
    for part in filter(None, text.split(", ")):
        place = part.rsplit("!", 1)[-1]
        first, _, last = place.partition(":")
        column = first.rstrip("0123456789")
        low, high = int(first[len(column):]), int((last or first)[len(column):])
        found |= {f"{column}{row}" for row in range(low, high + 1)}
    return found


def one_question(server, dice, name, rows, top):
    """Random conditions, groups and measures; `top` is the row of the file that the first record is in."""
    conditions = [make_condition(dice, rows) for _ in range(dice.randrange(3))]
    kept = [(i, r) for i, r in enumerate(rows) if all(holds(r) for _, holds in conditions)]
    group = dice.choice([None, "Region", "Boat", "Day:month", "Day:year"])
    kinds = [(dice.choice(["sum", "min", "max", "mean", "count"]), dice.choice(["Hours", "Price", "Deposit"])) for _ in range(2)]
    question = {"where": [c for c, _ in conditions], "measures": [{"measure": k, "column": c} for k, c in kinds], "limit": 1000}
    if group:
        question["group"] = group
    said = ask(server, name, table="All orders" if name.endswith(("xlsx", "ods")) else None, **question)
    key = {None: lambda r: None, "Region": lambda r: r[1], "Boat": lambda r: r[2], "Day:month": lambda r: r[3].isoformat()[:7],
           "Day:year": lambda r: r[3].isoformat()[:4]}[group]
    groups = {}
    for i, row in kept:
        groups.setdefault(key(row), []).append((i, row))
    if group is None and not groups:
        groups = {None: []}
    expected = {k: [measure(kind, [r[HEAD.index(c)] for _, r in members]) for kind, c in kinds] for k, members in groups.items()}
    got = {(row["values"][0] if group else None): row["values"][1 if group else 0:] for row in said["rows"]}
    assert said["matched"] == len(kept), (name, question, said)
    right = got.keys() == expected.keys() and all(close(a, b) for k in got for a, b in zip(got[k], expected[k]))
    assert right, (name, question, got, expected)
    for row in said["rows"]:
        members, wanted = groups[row["values"][0] if group else None], set()
        for kind, column in kinds:
            at = HEAD.index(column)
            value = measure(kind, [r[at] for _, r in members])
            wanted |= {address(top + i, at + 1) for i, r in members
                       if r[at] is not None and (kind not in ("min", "max") or r[at] == value)}
        assert cells_of(row["cells"]) == wanted, (name, question, row, wanted)
    return len(got) * len(kinds)


def test_two_hundred_aggregates(tables):
    """200 questions, each with two measures of every group."""
    dice, asked = random.Random(5), 0
    for i in range(200):
        name = list(FILES)[i % len(FILES)]
        top = 4 if name.endswith(("xlsx", "ods")) else 2
        asked += one_question(tables, dice, name, make_rows(*FILES[name]), top)
    assert asked > 400


def test_list(tables):
    listed = call(tables, "GET", "/v1/tables?limit=1000")
    by_name = {(t["path"], t["number"]): t for t in listed["data"]}
    assert {path for path, _ in by_name} >= set(FILES), "beside the tables of the collection's pages"
    orders = by_name["orders.xlsx", 1]
    assert (orders["name"], orders["sheet"], orders["rows"]) == ("All orders", "Orders 2023", 61)
    assert [(c["name"], c["type"]) for c in orders["columns"]] == [
        ("Order", "number"), ("Region", "text"), ("Boat", "text"), ("Day", "date"), ("Hours", "number"), ("Price", "number"), ("Deposit", "number")]
    assert orders["columns"][5]["unit"] == "EUR"
    assert by_name["orders.csv", 1]["rows"] == 40
    assert listed["tool"]["function"]["name"] == "table_query"
    properties = listed["tool"]["function"]["parameters"]["properties"]
    described = call(tables, "GET", "/openapi.json")["paths"]["/v1/tables/query"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert properties.keys() == described["properties"].keys()
    one = call(tables, "GET", "/v1/tables?document=orders.xlsx")
    assert [t["name"] for t in one["data"]] == ["All orders", "Notes"] and not one["has_more"]
    assert call(tables, "GET", "/v1/tables?limit=1")["has_more"]


def test_rows_and_sort(tables):
    rows = make_rows(*FILES["orders.csv"])
    best = sorted(rows, key=lambda r: -r[5])[:3]
    said = ask(tables, "orders.csv", columns=["Order", "Price"], sort=[{"by": "Price", "order": "desc"}], limit=3)
    assert said["columns"] == ["Order", "Price"] and said["has_more"]
    assert [row["values"] for row in said["rows"]] == [[r[0], r[5]] for r in best]
    assert said["rows"][0]["cells"] == f"A{rows.index(best[0]) + 2}, F{rows.index(best[0]) + 2}"
    said = ask(tables, "orders.csv", group=["Region"], measures=[{"measure": "sum", "column": "Price"}],
               sort=[{"by": "sum of Price", "order": "desc"}], limit=1)
    sums = {r: math.fsum(row[5] for row in rows if row[1] == r) for r in REGIONS}
    assert said["rows"][0]["values"][0] == max(sums, key=sums.get)


def test_a_table_by_the_document_that_the_list_names(tables):
    """The list names a file of records by one of them; a question means the whole table."""
    total = {"measures": [{"measure": "sum", "column": "Price"}]}
    listed = [one for one in call(tables, "GET", "/v1/tables?limit=1000")["data"] if one["path"] == "orders.csv"]
    assert len(listed) == 1 and listed[0]["rows"] == len(make_rows(*FILES["orders.csv"]))
    said, by_path = ask(tables, listed[0]["document"], **total), ask(tables, "orders.csv", **total)
    assert said["rows"] == by_path["rows"] and said["matched"] == by_path["matched"] == listed[0]["rows"]


def test_totals_are_left_out_and_told(tables):
    rows = make_rows(*FILES["orders.xlsx"])
    question = {"table": "1", "measures": [{"measure": "sum", "column": "E"}]}
    said = ask(tables, "orders.xlsx", **question)
    assert said["rows"][0]["values"] == [sum(r[4] for r in rows)] and said["columns"] == ["sum of Hours"]
    assert said["left_out"]["totals"] == 1 and said["left_out"]["total_cells"] == f"'Orders 2023'!A{len(rows) + 4}"
    assert said["rows"][0]["cells"] == f"'Orders 2023'!E4:E{len(rows) + 3}"
    assert ask(tables, "orders.xlsx", totals=True, **question)["rows"][0]["values"] == [2 * sum(r[4] for r in rows)]


def test_bad_questions(tables):
    for fields, status, words in [
            ({"document": "nothing.xlsx"}, 404, "no document has the id or path"),
            ({"document": "orders.xlsx"}, 400, 'the document has 2 tables, name one: 1 ("All orders"), 2 ("Notes")'),
            ({"document": "orders.xlsx", "table": "Prices"}, 404, 'no table "Prices"'),
            ({"document": "orders.csv", "columns": ["Colour"]}, 400, 'no column "Colour"'),
            ({"document": "orders.csv", "measures": [{"measure": "sum", "column": "Boat"}]}, 400, "holds texts"),
            ({"document": "orders.csv", "measures": [{"measure": "sum"}]}, 400, "needs a column"),
            ({"document": "orders.csv", "measures": [{"measure": "median", "column": "Price"}]}, 400, "must be count"),
            ({"document": "orders.csv", "where": [{"column": "Price", "is": "<", "value": "cheap"}]}, 400, "holds numbers"),
            ({"document": "orders.csv", "where": [{"column": "Price", "is": "like", "value": 1}]}, 400, '"is" must be'),
            ({"document": "orders.csv", "sort": [{"by": "Size"}]}, 400, "no such column"),
            ({"document": "orders.csv", "limit": 0}, 400, "limit"),
            ({"document": "orders.csv", "sql": "select 1"}, 400, "sql"),
            ({"document": ""}, 400, "document is empty")]:
        reply = tables.request("POST", "/v1/tables/query", json.dumps(fields), {"Content-Type": "application/json"})
        assert reply.status == status and words in reply.json()["error"]["message"], (fields, reply.body)


def test_texts_of_clients_are_no_sql(tables):
    for text in ("'; DROP TABLE t; --", '"', "x' OR '1'='1", "\\", "%", "?1", "\u0000"):
        said = ask(tables, "orders.csv", where=[{"column": "Region", "is": "=", "value": text}], measures=[{"measure": "count"}])
        assert said["rows"][0]["values"] == [0], text
        reply = tables.request("POST", "/v1/tables/query", json.dumps({"document": "orders.csv", "columns": [text]}), {"Content-Type": "application/json"})
        assert reply.status == 400, text
    assert ask(tables, "orders.csv", measures=[{"measure": "count"}])["rows"][0]["values"] == [40]


def test_a_key_asks_its_own_documents_alone(start, folder, keys):
    """Another tenant's tables are not listed, not found by id or path, and change no answer."""
    for team in ("bakers", "masons"):
        keys.add(team, filter={"eq": {"team": team}})
    keys.add("all")
    server = start(f"retrieval.collection={folder}", f"server.keys_file={keys.path}")
    heads = {name: bearer(secret) for name, secret in keys.secrets.items()}
    for team, price in (("bakers", 3), ("masons", 500)):
        body = b"item,price\nbread,%d\ncake,%d\n" % (price, price + 1)
        form = (b'--b\r\nContent-Disposition: form-data; name="file"; filename="prices.csv"\r\n\r\n' + body +
                b'\r\n--b\r\nContent-Disposition: form-data; name="metadata"\r\n\r\n{"team": "' + team.encode() + b'"}\r\n--b--\r\n')
        reply = server.request("POST", "/v1/documents", form, {"Content-Type": "multipart/form-data; boundary=b", **heads[team]})
        assert reply.status == 200, reply.body
    total = {"measures": [{"measure": "sum", "column": "price"}]}
    assert ask(server, "prices.csv", headers=heads["bakers"], **total)["rows"][0]["values"] == [7]
    assert ask(server, "prices.csv", headers=heads["masons"], **total)["rows"][0]["values"] == [1001]
    reply = server.request("GET", "/v1/tables", None, heads["masons"])
    assert [t["rows"] for t in reply.json()["data"]] == [2]
    assert server.request("GET", "/v1/tables", None, {}).status == 401
    for team, sum_of in (("bakers", 7), ("masons", 1001)):
        got = mcp_call(server, "table_query", {"document": "prices.csv", **total}, **heads[team])
        assert got["rows"][0]["values"] == [sum_of]
        assert [t["rows"] for t in mcp_call(server, "table_list", **heads[team])["data"]] == [2]
