"""The names in the pages and the names in the sources are the same ones, and every link leads somewhere.

Nothing is run here: options, paths, codes, metrics and families are read out of the tables that the program is made of.
docs/config.md itself is generated, and tests/unit/test_config.c compares it."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted(DOCS.rglob("*.md")), *sorted((ROOT / "models").rglob("*.md"))]
GUIDES = "\n".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def page_id(page):
    return str(page.relative_to(ROOT))


def prose(page):
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def sources(folder, pattern="*.[ch]"):
    return "\n".join(file.read_text(encoding="utf-8") for file in sorted((ROOT / folder).rglob(pattern)))


def anchors(page):
    """The names that GitHub gives the headings of a page."""
    names = []
    for heading in re.findall(r"^#{1,6} +(.*?)\s*$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        names.append(name if name not in names else f"{name}-{names.count(name)}")
    return set(names)


def code_table():
    """The part of docs/api.md that lists codes, by status: {400: {"no_query", ...}}."""
    part = re.search(r"^## Errors\n(.*?)(?=^## |\Z)", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[1]
    table = {}
    for statuses, cells in re.findall(r"^\| (\d{3}(?:, \d{3})*)[^|]* \| (.*)$", part, re.MULTILINE):
        for status in statuses.split(","):
            table.setdefault(int(status), set()).update(re.findall(r"`([a-z]+_[a-z_]+|cancelled)`", cells))
    return table


def codes_in_sources():
    """Each code with the statuses that it is given with."""
    named = {"MHD_HTTP_BAD_REQUEST": 400, "MHD_HTTP_CONTENT_TOO_LARGE": 413, "MHD_HTTP_EXPECTATION_FAILED": 417,
             "MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE": 431, "MHD_HTTP_SERVICE_UNAVAILABLE": 503,
             "MHD_HTTP_TOO_MANY_REQUESTS": 429, "MHD_HTTP_UNSUPPORTED_MEDIA_TYPE": 415}
    server = sources("server")
    given = re.findall(r'failure_set\(\s*&?[\w.>-]+,\s*(\w+),\s*"([a-z_]+)"', server)
    given += re.findall(r'http = (\d+),\s*(?:\w+\.)?code = "([a-z_]+)"', server)
    table = {}
    for status, code in given:
        if status.isdigit() or status in named:
            table.setdefault(code, set()).add(named.get(status) or int(status))
    return table


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"https?:|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page_id(page)}: {link} is not there"
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), f"{page_id(page)}: no heading is #{anchor} of {link}"


def test_options_that_pages_name_exist():
    """Those between backticks, and those of --set. benchmarks.md names figures in the same way."""
    options = set(re.findall(r"^\| `([a-z]+\.[a-z0-9_]+)` \|", (DOCS / "config.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert len(options) > 150
    rooms = "|".join(sorted({option.split(".")[0] for option in options}))
    for page in PAGES:
        if page.name == "benchmarks.md" or page.parent.name == "spec":
            continue
        text = page.read_text(encoding="utf-8")
        named = re.findall(rf"`((?:{rooms})\.[a-z0-9_]+)(?:=[^`\s]*)?`", text)
        named += re.findall(rf"--set \"?((?:{rooms})\.[a-z0-9_]+)=", text)
        unknown = {name for name in named if not name.endswith((".gguf", ".json", ".jsonl", ".md", ".packed", ".safetensors", "_"))} - options
        assert not unknown, f"{page_id(page)}: {sorted(unknown)} is no option"


def test_every_path_of_the_api_is_in_a_page():
    """Those of the page's own files apart, which are parts of it."""
    routes = re.findall(r'(?:ROUTE|NOT_HERE)\("([A-Z]+)", "([^"]+)"', (ROOT / "server/api/routes.c").read_text(encoding="utf-8"))
    assert len(routes) > 60
    for method, path in routes:
        if path.startswith("/api/"):
            words = [path.removeprefix("/api/").split("/")[0]]  # a page lists the words of Ollama's paths
        else:
            words = re.split(r"/?\{\w+\}", path)
        missing = [word for word in words if word.strip("/") and word.strip("/") not in GUIDES]
        assert not missing, f"{method} {path} is in no page: {missing}"


def test_codes_of_errors():
    """docs/api.md lists every code that the sources give, by its status, and no other; openapi.json has the statuses."""
    listed, given = code_table(), codes_in_sources()
    assert len(given) > 40
    for code, statuses in sorted(given.items()):
        for status in statuses:
            assert code in listed.get(status, set()), f"docs/api.md, Errors: {status} lacks {code}"
    openapi = re.search(r"error_statuses\[\] = \{([^}]*)\}", (ROOT / "server/api/openapi.c").read_text(encoding="utf-8"))[1]
    described = {int(status) for status in openapi.split(",")} | {401}  # where a route may ask for a key
    assert {status for statuses in given.values() for status in statuses} <= described
    server = sources("server")
    for status, codes in listed.items():
        for code in codes:
            assert f'"{code}"' in server, f"docs/api.md, Errors: no source gives {code} ({status})"


def test_metrics():
    """The table of docs/api.md has each metric, or its family as retro_NAME_*; and none that there is not."""
    table = re.search(r"^\| metric \| meaning \|\n(.*?)\n\n", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[1]
    written = set(re.findall(r'"((?:retro|process)_[a-z0-9_]+)', sources("server")))
    listed, last = set(), ""
    for name in re.findall(r"`((?:retro_|process_|_)[a-z0-9_]+\*?)(?:\{[a-z_,]+\})?`", table):
        if name.startswith("_"):  # the end of the name before it
            name = re.sub(r"_[a-z]+$", "", last) + name
        else:
            last = name
        listed.add(name)
    assert len(written) > 50
    for name in sorted(written):
        assert any(name == one or (one.endswith("*") and name.startswith(one[:-1])) for one in listed), f"docs/api.md has no metric {name}"
    for name in sorted(listed):
        assert any(name == one or (name.endswith("*") and one.startswith(name[:-1])) for one in written), f"no source writes {name}"


def test_parts_of_the_memory_line():
    """docs/serving.md says what each part holds and which option lowers it."""
    parts = set(re.findall(r'\.name = "([^"]+)",\s*\.bytes|struct budget_part \w+ = \{\s*\.name = "([^"]+)"', sources("server/host")))
    names = {one or other for one, other in parts}
    assert len(names) > 10
    table = re.search(r"^\| part \| holds \|.*?\n\n", (DOCS / "serving.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[0]
    rows = {name for cell in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE) for name in cell.split(", ")}
    assert names <= rows, f"docs/serving.md lacks {sorted(names - rows)}"


def test_families():
    """Each type of a model that opens is in docs/model-format.md, and on the page for its use."""
    table = (ROOT / "retro/model/model_families.c").read_text(encoding="utf-8")
    opened = set(re.findall(r"&(family_\w+)", table))
    types = {}
    for name, body in re.findall(r"^const struct family (family_\w+) =\s*\{(.*?)\};", sources("retro/families"), re.MULTILINE | re.DOTALL):
        found = re.search(r'\.model_type = "([^"]+)"', body) or re.search(r'[A-Z_]{6,}\(\s*"([^"]+)"', body)
        if name in opened and found:
            types[name] = found[1]
    assert len(types) > 60
    for pages in (("model-format.md",), ("models.md", "embedders.md", "vision.md", "search.md")):
        text = "".join((DOCS / page).read_text(encoding="utf-8") for page in pages)
        missing = sorted(t for t in types.values() if f"`{t}`" not in text and f'"{t}"' not in text)
        assert not missing, f"{pages} do not name {missing}"


def test_architectures_of_gguf():
    table = (ROOT / "retro/weights/gguf_architectures.c").read_text(encoding="utf-8")
    names = set(re.findall(r'ARCHITECTURE\("([^"]+)"', table))
    assert len(names) > 20
    for page in ("models.md", "gguf.md"):
        text = (DOCS / page).read_text(encoding="utf-8")
        missing = sorted(name for name in names if f"`{name}`" not in text)
        assert not missing, f"docs/{page} does not name {missing}"
