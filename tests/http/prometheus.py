"""A strict reader of Prometheus' text format 0.0.4, with the rules of `promtool check metrics`."""
import collections
import math
import re

NAME, LABEL = r"[a-zA-Z_][a-zA-Z0-9_]*", r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)")
HEADER = re.compile(rf"# (HELP|TYPE) ({NAME}) (.+)")
NOT_BASE = re.compile(r"_(milliseconds|ms|minutes|hours|kilobytes|megabytes|percent)(_|$)")


def family_of(name, families):
    """A histogram's parts belong to it."""
    for end in ("_bucket", "_sum", "_count"):
        if name.endswith(end) and families.get(name.removesuffix(end), {}).get("TYPE") == "histogram":
            return name.removesuffix(end)
    return name


def check_histogram(name, samples):
    groups = collections.defaultdict(list)
    for (part, labels), value in samples.items():
        rest = tuple(label for label in labels if not label.startswith("le="))
        groups[rest].append((part, [label[4:-1] for label in labels if label.startswith("le=")], value))
    for labels, parts in groups.items():
        buckets = [(math.inf if le[0] == "+Inf" else float(le[0]), value) for part, le, value in parts if part.endswith("_bucket")]
        counts = [value for part, _, value in parts if part == name + "_count"]
        assert len(counts) == 1 and [part for part, _, _ in parts].count(name + "_sum") == 1, (name, labels)
        assert buckets == sorted(buckets) and buckets[-1] == (math.inf, counts[0]), (name, labels)
        assert len({bound for bound, _ in buckets}) == len(buckets), (name, labels)
        assert [value for _, value in buckets] == sorted(value for _, value in buckets), (name, labels)


def read(text):
    """{family: {"TYPE", "HELP", "samples": {(name, labels): value}}}; any break of the rules is an AssertionError."""
    assert text.endswith("\n")
    families, open_family = {}, None
    for line in text.splitlines():
        if line.startswith("#"):
            found = HEADER.fullmatch(line)
            assert found, line
            family = families.setdefault(found[2], {"samples": {}})
            assert found[1] not in family and not family["samples"], f"{line}: twice, or behind its samples"
            assert open_family == found[2] or len(family) == 1, f"{line}: not in one piece"
            family[found[1]], open_family = found[3], found[2]
            continue
        found = SAMPLE.fullmatch(line)
        assert found, line
        name = family_of(found[1], families)
        assert name == open_family, f"{line}: not behind its header"
        value = float(found[3])
        labels = tuple(re.findall(LABEL, found[2] or ""))
        assert math.isfinite(value) and len({label.split("=")[0] for label in labels}) == len(labels), line
        samples = families[name]["samples"]
        assert (found[1], labels) not in samples, f"{line}: twice"
        samples[found[1], labels] = value
    for name, family in families.items():
        assert family["TYPE"] in ("counter", "gauge", "histogram") and family["HELP"].strip(), name
        assert (family["TYPE"] == "counter") == name.endswith("_total"), name
        assert not NOT_BASE.search(name) and name == name.lower(), name
        assert not name.endswith(("_bucket", "_sum", "_count", "_counter", "_gauge", "_histogram")), name
        if family["TYPE"] == "counter":
            assert all(value >= 0 for value in family["samples"].values()), name
        if family["TYPE"] == "histogram":
            check_histogram(name, family["samples"])
    return families


def value(families, name, **labels):
    """The sum over all samples that have these labels."""
    wanted = {f'{k}="{v}"' for k, v in labels.items()}
    family = families[family_of(name, families)]
    return sum(v for (n, have), v in family["samples"].items() if n == name and wanted <= set(have))
