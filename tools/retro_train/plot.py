"""The figure of `retro-eval ppl --curve`: bits per byte over the overlap that is allowed (RETRO, equation 5)."""

import csv

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402  (after the choice of a backend without windows)
from matplotlib.ticker import PercentFormatter  # noqa: E402

from .files import replace_file  # noqa: E402

MODES = {"off": ("C1", "without retrieval"), "gpt": ("C2", "plain GPT"), "on": ("C0", "with retrieval")}
MEASURES = {"run": "longest common run of tokens", "8grams": "share of the chunk's 8-grams"}


def read_curve(path):
    """{measure: rows by threshold}; a row without text has been left out."""
    rows = {measure: [] for measure in MEASURES}
    with open(path, newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if int(row["bytes"]) > 0:
                rows[row["overlap"]].append({key: float(v) for key, v in row.items() if key != "overlap" and v})
    return rows


def plot_measure(axis, share, rows, label):
    """Above, the curves; below, how much of the text each threshold leaves."""
    at = [row["at_most"] for row in rows]
    for mode, (colour, name) in MODES.items():
        if rows and mode in rows[0]:
            axis.plot(at, [row[mode] for row in rows], color=colour, marker="o", markersize=3, clip_on=False, label=name)
    share.fill_between(at, [row["bytes"] / rows[-1]["bytes"] for row in rows], step="post", color="0.8")
    share.set_xlabel(f"largest overlap allowed: {label}")
    for each in (axis, share):
        each.grid(color="0.9", linewidth=0.6)
        each.spines[["top", "right"]].set_visible(False)
    share.xaxis.set_major_formatter(PercentFormatter(1))
    share.yaxis.set_major_formatter(PercentFormatter(1))
    share.set(xlim=(0, 1), ylim=(0, 1), yticks=(0, 0.5, 1))


def plot_curve(curve, png):
    measures = {name: rows for name, rows in read_curve(curve).items() if rows}
    if not measures:
        raise ValueError(f"{curve}: no chunk read neighbours, so there is nothing to draw")
    figure, axes = plt.subplots(2, len(measures), sharex="col", sharey="row", squeeze=False, figsize=(5 * len(measures), 4.6),
                                height_ratios=(4, 1), layout="constrained")
    for column, (name, rows) in enumerate(measures.items()):
        plot_measure(axes[0][column], axes[1][column], rows, MEASURES[name])
    axes[0][0].set_ylabel("bits per byte")
    axes[1][0].set_ylabel("of the text")
    axes[0][0].legend(frameon=False)
    replace_file(png, lambda path: figure.savefig(path, format="png", dpi=150))
    plt.close(figure)
