"""/metrics by the rules of its format, and the dashboard that reads it."""
import json
import re
import time

import pytest

import prometheus
from conftest import ROOT
from test_keys import ask, bearer, keys, new_key  # noqa: F401

DASHBOARD = ROOT / "docs/grafana/retro-server.json"


@pytest.fixture
def busy(start, keys):
    """A server with keys that has answered, refused and looked up, and its metrics."""
    secret = keys.add("alice", tokens_per_day=400)
    server = start(f"server.keys_file={keys.path}", "server.operations=open", 'model.name=a "model"\\ of\nours')
    assert ask(server, bearer(secret), "The fork() system call " * 20, max_tokens=5, ignore_eos=True).status == 200
    server.request("GET", "/nothing")
    deadline = time.monotonic() + 20
    while (ask(server, bearer(secret), "The " * 100)).status != 429:
        assert time.monotonic() < deadline
    while True:  # a request is counted out when its connection has seen the end of the answer
        reply = server.request("GET", "/metrics")
        if prometheus.value(prometheus.read(reply.body.decode()), "retro_key_requests_running", key="alice") == 0:
            return server, reply
        assert time.monotonic() < deadline


def test_the_format(busy):
    server, reply = busy
    assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = prometheus.read(reply.body.decode())
    assert prometheus.value(families, "retro_key_refused_requests_total", key="alice") == 1
    assert prometheus.value(families, "retro_key_tokens_total", key="alice") >= 400
    assert prometheus.value(families, "retro_key_requests_running", key="alice") == 0
    assert prometheus.value(families, "retro_http_requests_total", code="429") == 1
    assert prometheus.value(families, "retro_http_requests_total", code="401", path="other") == 1
    assert prometheus.value(families, "retro_retrieval_seconds_count", phase="search") >= 1
    assert prometheus.value(families, "retro_http_connections") >= 1
    assert prometheus.value(families, "retro_log_dropped_lines_total") == 0
    assert 1 << 20 < prometheus.value(families, "process_resident_memory_bytes") < 8 << 30
    assert 3 < prometheus.value(families, "process_open_fds") < prometheus.value(families, "process_max_fds")
    assert 0 <= time.time() - prometheus.value(families, "process_start_time_seconds") < 600
    assert 0 < prometheus.value(families, "process_cpu_seconds_total") < 600


def test_the_dashboard_reads_what_is_there(busy):
    """Every metric of a query is in /metrics, with every label that the query names."""
    families = prometheus.read(busy[1].body.decode())
    dashboard = json.loads(DASHBOARD.read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [re.search(r"\((.*),", variable["query"])[1] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
    seen = set()
    for query in queries:
        found = re.findall(r"((?:retro|process)_[a-z0-9_]+)(?:\{(.*?)\})?", query)
        assert len(found) == 1, query
        name, matchers = found[0]
        family = families[prometheus.family_of(name, families)]
        have = {label.split("=")[0] for (n, labels), _ in family["samples"].items() if n == name for label in labels}
        named = set(re.findall(r"(\w+)=", matchers)) | set(re.sub(r"\s", "", " ".join(re.findall(r"by \((.*?)\)", query))).split(","))
        assert named - {"job", "instance", ""} <= have, query
        assert (name.endswith("_total") or name.endswith("_bucket")) == ("rate(" in query) or "label_values" in query or "steps_total" in query, query
        seen.add(name)
    assert len(seen) > 15


@pytest.mark.parametrize("text", ["a_total 1\n", "# TYPE a_total counter\n# HELP a_total A.\na_total 1\na_total 2\n", "# HELP a A.\n# TYPE a counter\na 1\n",
                                  "# HELP a A.\n# TYPE a gauge\na NaN\n", "# HELP a A.\n# TYPE a gauge\na{b=\"\\x\"} 1\n",
                                  "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n",
                                  "# HELP a A.\n# TYPE a gauge\n# HELP b B.\n# TYPE b gauge\na 1\nb 1\n"])
def test_the_reader_is_strict(text):
    with pytest.raises(AssertionError):
        prometheus.read(text)
