"""tools/gpu_check_report.py DEVICE STAGES OUT: what tools/gpu_check.sh found so far, as OUT/gpu.json and OUT/gpu.md.

STAGES has a line "name, exit status, seconds, limit" for each stage that has run; OUT holds their logs. A figure that was
taken more than once is given as the median and the range. The goals stand next to what they are about.
"""
import datetime
import json
import pathlib
import re
import statistics
import sys

US, EAGER, PEERS = "retro-server", "retro-server eager", ("pytorch", "pytorch compiled")
# Shares of the copy and of the product that single sequences and prompts are to reach, and the ratio to PyTorch.
GOALS = {"decode.1": 0.9, "prefill.512": 0.8, "prefill.2048": 0.8}
PEER_GOAL = 1.0
FACTS = ("row_weights", "decode_bytes")  # of a model, not of a machine


def read(path):
    return path.read_text(errors="replace") if path.exists() else ""


def stage_rows(path):
    return [{"name": name, "status": int(status), "seconds": int(seconds), "limit": int(limit)}
            for name, status, seconds, limit in (line.split("\t") for line in read(path).splitlines())]


def device_facts(log):
    facts = dict(line.split(": ", 1) for line in log.splitlines() if ": " in line)
    gpu = [part.strip() for part in facts.get("gpu", "").split(",")]
    named = len(gpu) == 3
    return {"gpu": gpu[0] if named else None, "driver": gpu[1] if named else None, "memory": gpu[2] if named else None,
            "toolkit": facts.get("toolkit"), "torch": facts.get("torch"),
            "missing": [line for line in log.splitlines() if "missing" in line]}


def figures(log):
    """{(by, model, name): {value, low, high, times, unit}}"""
    found = {}
    for line in log.splitlines():
        if not line.startswith("{"):
            continue
        try:
            row = json.loads(line)
        except ValueError:  # the program was killed while it wrote the line
            continue
        key = (row.get("by", US), row.get("model"), row["name"], row["unit"])
        found.setdefault(key, []).append(row["value"])
    return [{"by": by, "model": model, "name": name, "unit": unit, "value": statistics.median(values),
             "low": min(values), "high": max(values), "times": len(values)}
            for (by, model, name, unit), values in found.items()]


def counts(out):
    """Passed and failed checks of the stages that count them."""
    ops, golden = read(out / "ops.log"), read(out / "golden.log")
    sanitizer = re.split(r"^== ", read(out / "sanitizer.log"), flags=re.M)[1:]
    return {
        "ops": {word.lower(): sum(map(int, re.findall(rf"\[ +{word} +\] (\d+) test", ops))) for word in ("PASSED", "FAILED")},
        "golden": {word: sum(map(int, re.findall(rf"(\d+) {word}", golden))) for word in ("passed", "failed")},
        "sanitizer": {text.split("\n", 1)[0]: (re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", text) or ["did not finish"])[-1]
                      for text in sanitizer},
    }


def derived(rows):
    """Shares of the ceilings, which the goals are stated in, and ratios to the better of PyTorch's figures. For a step of a
    few sequences the share is that of the weights' bytes, for a prompt that of the operations with the weights that every
    row meets; keys and values, attention and logits are left out of both."""
    value = {(r["by"], r["model"], r["name"]): r["value"] for r in rows}
    shares = []
    for (by, model, name), rate in value.items():
        if by != US or model is None or not name.startswith(("decode.", "prefill.")):
            continue
        kind, size = name.split(".")
        share, copy, gemm = None, value.get((US, None, "copy")), value.get((US, None, "gemm"))
        if kind == "decode" and size in ("1", "8") and copy:
            share = rate / int(size) * value[US, model, "decode_bytes"] * 1e-9 / copy
        if kind == "prefill" and gemm:
            share = rate * 2 * value[US, model, "row_weights"] * 1e-12 / gemm
        peer, by = max(((value[p, model, name], p) for p in PEERS if (p, model, name) in value), default=(None, None))
        shares.append({"model": model, "name": name, "share": share, "peer": rate / peer if peer else None, "peer_by": by})
    return shares


def goals(shares):
    """A line for each goal that something was measured for."""
    lines = []
    for s in shares:
        wanted = {"of the ceiling": (s["share"], GOALS.get(s["name"])), "of PyTorch": (s["peer"], PEER_GOAL)}
        for what, (reached, goal) in wanted.items():
            if reached is not None and goal is not None:
                lines.append(f"| {s['model']} {s['name']} | {what} | {100 * goal:.0f} % | {100 * reached:.0f} % | "
                             f"{'yes' if reached >= goal else 'no'} |")
    return ["| figure | | goal | reached | met |", "|---|---|---|---|---|"] + lines if lines else []


def table(rows, shares):
    value = {(r["by"], r["model"], r["name"]): r for r in rows}
    lines = ["| model | figure | retro-server | range | of the ceiling | PyTorch | compiled | ratio |",
             "|---|---|---|---|---|---|---|---|"]
    lookup = {(s["model"], s["name"]): s for s in shares}
    for r in rows:
        if r["by"] != US or r["name"] in FACTS:
            continue
        s = lookup.get((r["model"], r["name"]), {})
        peers = [value.get((peer, r["model"], r["name"])) for peer in PEERS]
        share = f"{100 * s['share']:.0f} %" if s.get("share") else ""
        ratio = f"{s['peer']:.2f}" if s.get("peer") else ""
        shown = " | ".join(format(p["value"], ".4g") if p else "" for p in peers)
        lines.append(f"| {r['model'] or 'the device'} | {r['name']} | {r['value']:.4g} {r['unit']} | "
                     f"{r['low']:.4g} .. {r['high']:.4g} | {share} | {shown} | {ratio} |")
    return lines


def main():
    device, stages, out = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    facts, rows = device_facts(read(out / "device.log")), figures(read(out / "bench.log"))
    facts["missing"] += [line for line in read(out / "ops.log").splitlines() if line.startswith("missing")]
    result = {"date": datetime.date.today().isoformat(), "device": device, **facts, "stages": stage_rows(stages),
              **counts(out), "figures": rows, "derived": derived(rows)}
    (out / "gpu.json").write_text(json.dumps(result, indent=1) + "\n")
    lines = [f"# {facts['gpu'] or 'No GPU'}: checks and figures", "",
             f"Written by `make gpu-check` on {result['date']}: device `{device}`, driver {facts['driver']}, toolkit "
             f"{facts['toolkit']}, PyTorch {facts['torch']}.", ""]
    lines += [f"* {text}" for text in facts["missing"]]
    lines += ["", "| stage | result | seconds |", "|---|---|---|"]
    lines += [f"| {s['name']} | {'ok' if s['status'] == 0 else 'failed (' + str(s['status']) + ')'} | {s['seconds']} |"
              for s in result["stages"]]
    lines += ["", f"Op tests: {result['ops']['passed']} passed, {result['ops']['failed']} failed. Golden cases: "
              f"{result['golden']['passed']} passed, {result['golden']['failed']} failed."]
    lines += [f"compute-sanitizer {tool}: {summary}." for tool, summary in result["sanitizer"].items()]
    eager = [f"{r['model']} {r['name']} {r['value']:.4g} {r['unit']}" for r in rows
             if r["by"] == EAGER and r["name"].startswith(("decode.", "prefill."))]
    if eager:
        lines += ["", "Op by op, without graphs: " + ", ".join(eager) + "."]
    if rows:
        lines += [""] + goals(result["derived"])
        lines += ["", "decode.B: tokens a second of B sequences, of the ceiling: bytes of weights read against the copy. "
                  "prefill.N: a prompt of N tokens, of the ceiling: operations of the weights against the product. "
                  "search.KIND.Q: Q queries among a million vectors of 384 numbers. PyTorch: as a CUDA graph, and that "
                  "with torch.compile; the ratio is to the better. "
                  "Medians; ranges over repeats.", ""] + table(rows, result["derived"])
    (out / "gpu.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
