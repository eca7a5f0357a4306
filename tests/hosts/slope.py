"""How a network's delay and a token's bytes grow with the way ranks share a model: python slope.py [BUILD]. Prints, for
each shape on machines of its own, the milliseconds and bytes of a written token, and the slope: one-way delays that a
token waits for. Needs namespaces (network.py)."""
import os
import pathlib
import sys
import tempfile
import time

if len(sys.argv) > 1:
    os.environ["RETRO_BUILD"] = sys.argv[1]
import test_hosts
from network import Network

DELAYS = [0, 0.002, 0.01]
TOKENS = {0: 100, 0.002: 40, 0.01: 20}


def token_seconds(job, tokens):
    """Seconds of one more token: a long answer less a short one."""
    request = {**test_hosts.REQUEST, "temperature": 0, "retrieval": {"enabled": False}}
    seconds = []
    for n in (4, 4 + tokens):
        begin = time.monotonic()
        job.text({**request, "max_tokens": n})
        seconds.append(time.monotonic() - begin)
    return (seconds[1] - seconds[0]) / tokens


def measure(folder, shape):
    network = Network("a", "b", "c")
    job = test_hosts.Job(folder, network, shape, **{"parallel.timeout": 60})
    try:
        job.ready()
        times = []
        for network.delay in DELAYS:
            job.text()
            sent = network.bytes.total()
            times.append(token_seconds(job, TOKENS[network.delay]))
            sent = (network.bytes.total() - sent) / (TOKENS[network.delay] + 8)
        hops = (times[-1] - times[-2]) / (DELAYS[-1] - DELAYS[-2])
        shown = ", ".join(f"{1e3 * t:.1f} ms at {1e3 * d:g} ms" for d, t in zip(DELAYS, times))
        print(f"{shape}: a token takes {shown}; {hops:.1f} delays and {sent / 1e3:.0f} kB with headers", flush=True)
        network.delay = 0
        job.stop()
    finally:
        job.kill()
        network.close()


with tempfile.TemporaryDirectory() as folder:
    for shape in test_hosts.SHAPES:
        place = pathlib.Path(folder) / shape
        place.mkdir()
        measure(place, shape)
