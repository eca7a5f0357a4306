"""What a request costs, its client chooses: heavy ones are read where nobody else waits for them."""
import json
import select
import threading
import time

import pytest

from test_http import read_response
from test_keys import bearer, keys  # noqa: F401 (a fixture)
from test_lifecycle import idle

pytestmark = pytest.mark.hostile

# Half a second's work for the tokenizer: it costs no more than linear time.
HEAVY = json.dumps({"prompt": "".join(chr(0x4E00 + 7 * i % 20000) for i in range(500_000))}, ensure_ascii=False).encode()


def send_heavy(server, secret="", last=0):
    """But for the last bytes of the body."""
    s = server.socket()
    s.settimeout(300)
    key = f"X-Api-Key: {secret}\r\n" if secret else ""
    s.sendall(f"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n{key}Content-Length: {len(HEAVY)}\r\n\r\n".encode() + HEAVY[:len(HEAVY) - last])
    return s


def status_of(s):
    """None: the connection ended before the body had come."""
    try:
        return read_response(s.makefile("rb"))[0]
    except (IndexError, ConnectionError):
        return None


def answered(s):
    return bool(select.select([s], [], [], 0)[0])


def ask_operators(server):
    """The longest that one of them waited."""
    longest = 0
    for path in ("/livez", "/readyz", "/metrics", "/health"):
        started = time.monotonic()
        assert server.request("GET", path).status == 200
        longest = max(longest, time.monotonic() - started)
    return longest


def test_operators_are_answered_beside_heavy_requests(start):
    """More come at once than there are threads that serve connections: operators wait for none of them."""
    server = start("retrieval.collection=")
    heavy = [send_heavy(server, last=1) for _ in range(8)]
    ask_operators(server)
    for s in heavy:
        s.sendall(HEAVY[-1:])
    time.sleep(0.1)  # they are in work
    longest = ask_operators(server)
    assert not any(answered(s) for s in heavy), f"{longest:.3f} s, as long as a heavy one takes"
    while not all(answered(s) for s in heavy):
        longest = max(longest, ask_operators(server))
    for s in heavy:
        status, _, body = read_response(s.makefile("rb"))
        assert status == 200, body[:300]
    print(f"the longest answer took {longest:.3f} s")
    assert longest < 20


def test_one_client_does_not_take_all_threads(start, keys):  # noqa: F811
    """Its heavy requests wait for each other, and another client's request for none of them."""
    many, one = keys.add("many"), keys.add("one")
    server = start(f"server.keys_file={keys.path}", "retrieval.collection=", "server.request_threads=2")
    heavy = [send_heavy(server, many) for _ in range(6)]
    assert server.request("GET", "/v1/models", headers=bearer(one)).status == 200
    assert not all(answered(s) for s in heavy)
    for s in heavy:
        assert read_response(s.makefile("rb"))[0] == 200


def test_more_than_may_wait_are_refused(start):
    server = start("retrieval.collection=", "server.request_threads=1", "server.max_requests=1")
    heavy = [send_heavy(server) for _ in range(6)]
    replies = [read_response(s.makefile("rb")) for s in heavy]
    refused = [r for r in replies if r[0] == 503]
    assert refused and all(r[1]["retry-after"] == "1" and b"server.max_requests" in r[2] for r in refused)
    assert [r for r in replies if r[0] == 200], "one is at work"
    assert server.complete("The", max_tokens=1)


def test_who_leaves_is_not_read(start):
    """Eight leave while one is read: the next waits for that one only. Their requests are logged as theirs."""
    server = start("retrieval.collection=", "server.request_threads=1")
    first, others = send_heavy(server), []
    for _ in range(8):
        others.append(send_heavy(server))
    for s in others:
        s.close()
    assert server.complete("The", max_tokens=1)
    assert read_response(first.makefile("rb"))[0] == 200
    deadline = time.monotonic() + 60
    while server.log.read_text().count(" 499 ") < 6:
        assert time.monotonic() < deadline, server.log.read_text()
        time.sleep(0.02)


def test_requests_that_wait_have_their_time(start):
    server = start("retrieval.collection=", "server.request_threads=1", "server.request_timeout=1")
    heavy = [send_heavy(server) for _ in range(12)]
    replies = [read_response(s.makefile("rb")) for s in heavy]
    assert {r[0] for r in replies} <= {200, 503}
    assert all(b"server.request_timeout" in r[2] for r in replies if r[0] == 503)
    assert server.complete("The", max_tokens=1)


def test_the_end_answers_who_waits(start):
    server = start("retrieval.collection=", "server.request_threads=1")
    heavy = [send_heavy(server) for _ in range(6)]
    while not any(answered(s) for s in heavy):
        time.sleep(0.01)
    stopped = threading.Thread(target=server.stop)
    stopped.start()
    statuses = [status_of(s) for s in heavy]
    stopped.join()
    assert set(statuses) <= {200, 503, None} and set(statuses) & {200, 503}
    assert server.process.returncode == 0


@pytest.mark.parametrize("stream", [False, True])
def test_many_clients_in_any_order(server, stream):
    """Short requests beside heavy ones that leave at any moment."""
    def visit(i):
        s = send_heavy(server)
        time.sleep(i % 5 * 0.02)
        s.close()

    leaving = [threading.Thread(target=visit, args=(i,)) for i in range(20)]
    for thread in leaving:
        thread.start()
    for i in range(20):
        if stream:
            assert list(server.stream("The", max_tokens=3, ignore_eos=True))
        else:
            assert server.complete("The", max_tokens=3, ignore_eos=True)["usage"]["completion_tokens"] == 3
    for thread in leaving:
        thread.join()
    server.wait_until(idle, 60)
