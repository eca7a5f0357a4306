"""The common part of this folder's race programs: measuring by turns, what others took of the machine meanwhile, tables.

A race has entries (ours, theirs, with their options); a round runs each of them once, every other round in the opposite
order. Ratios are taken within a round, because a shared host changes from minute to minute, and their median is what is
quoted. No other program may run: "CPUs used by others" above 0.05 makes a table worthless.
"""
import json
import os
import resource
import statistics
import time

QUIET = 0.05


def machine_seconds():
    """CPU seconds that the whole machine has worked since it started."""
    fields = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def process_seconds(pid):
    """CPU seconds of a running process, all threads; its name in /proc may hold spaces and brackets."""
    fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Others:
    """`with Others(pids) as o`: o.cpus is how many CPUs were used by anything but this process, the processes it waited
    for within the block, and the running ones in pids."""

    def __init__(self, pids=()):
        self.pids = pids

    def own_seconds(self):
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(u.ru_utime + u.ru_stime for u in used) + sum(process_seconds(p) for p in self.pids)

    def __enter__(self):
        self.start = time.monotonic(), machine_seconds(), self.own_seconds()
        return self

    def __exit__(self, *_):
        wall, machine, own = time.monotonic(), machine_seconds(), self.own_seconds()
        foreign = machine - self.start[1] - (own - self.start[2])
        self.cpus = max(0.0, foreign) / (wall - self.start[0])


def append_result(path, race, i, name, result):
    with open(path, "a") as out:
        out.write(json.dumps({"race": race, "round": i, "entry": name, "time": time.strftime("%FT%T"), **result}) + "\n")


def recorded(path, race):
    """What the file at path has of this race: (round, entry) -> {test: value}."""
    if not path or not os.path.exists(path):
        return {}
    found = {}
    for line in json_lines(open(path).read()):
        if line["race"] == race:
            found[line["round"], line["entry"]] = {k: v for k, v in line.items() if k not in ("race", "round", "entry", "time")}
    return found


def measure_rounds(race, entries, rounds, path, there, end):
    """The rounds that are complete. Results of `there`, by round and name, are not measured again."""
    results = []
    for i in range(rounds):
        result = {name: there[i, name] for name in entries if (i, name) in there}
        for name in list(entries)[:: -1 if i % 2 else 1]:
            if name in result:
                continue
            if end is not None and time.monotonic() >= end:
                return results
            result[name] = entries[name](i)
            if path:
                append_result(path, race, i, name, result[name])
        results.append({name: result[name] for name in entries})
    return results


def run_numbered_rounds(race, entries, rounds, path=None, end=None):
    """entries: name -> function that measures once, of the round with the number that it is given, and returns
    {test: value}, "others" among them. One dictionary of those per complete round. Every result is also appended to the
    file at path as a line of JSON, as soon as it is there; those that the file has are not measured again. Nothing is
    begun after time.monotonic() has reached `end`."""
    return measure_rounds(race, entries, rounds, path, recorded(path, race), end)


def run_rounds(race, entries, rounds, path=None):
    """The same of entries that need no number, all of which are measured."""
    numbered = {name: lambda _, measure=measure: measure() for name, measure in entries.items()}
    return measure_rounds(race, numbered, rounds, path, {}, None)


def values_of(results, entry, test):
    return [r[entry][test] for r in results if test in r.get(entry, {})]


def ratios_of(results, test, entry, against):
    """Per round in which all of them have the test: the entry over the largest of those it is measured against."""
    measured = [r for r in results if all(test in r[name] for name in (entry, *against))]
    return [r[entry][test] / max(r[a][test] for a in against) for r in measured]


def spread(values, digits=2):
    return " / ".join(f"{f(values):.{digits}f}" for f in (min, statistics.median, max))


def print_results(title, results, units, ratios):
    """units: test -> unit. ratios: (label, test, entry, [against, ...]); the median of the last column is the result."""
    others = [r[e]["others"] for r in results for e in r]
    print(f"\n{title}; {len(results)} rounds, {time.strftime('%F %T')}")
    loud = "" if max(others) <= QUIET else f": above {QUIET}, DO NOT QUOTE"
    print(f"CPUs used by others: median {statistics.median(others):.2f}, max {max(others):.2f}{loud}")
    print("min / median / max:")
    for test, unit in units.items():
        for entry in results[0]:
            values = values_of(results, entry, test)
            if values:
                print(f"  {entry:34s} {test:25s} {spread(values):>30s} {unit}")
    for label, test, entry, against in ratios:
        values = ratios_of(results, test, entry, against)
        if values:
            print(f"  {label:60s} {spread(values):>30s} x")


def print_rounds(results, units):
    print("all rounds, in their order:")
    for test, unit in units.items():
        for entry in results[0]:
            values = values_of(results, entry, test)
            if values:
                print(f"  {entry:34s} {test:25s} {', '.join(f'{v:.4g}' for v in values)} {unit}")


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
