"""How many characters of a text were read wrong, and which cells of a table were found."""
import unicodedata

import numpy as np

# Marks that printers and readers take for each other.
SAME = str.maketrans({"\u201c": '"', "\u201d": '"', "\u201e": '"', "\u2018": "'", "\u2019": "'", "\u2014": "-", "\u2013": "-", "\u00a0": " ", "\u202f": " ",
                      "\u00ab": '"', "\u00bb": '"', "\ufb01": "fi", "\ufb02": "fl"})


def normal(text):
    return " ".join(unicodedata.normalize("NFC", text).translate(SAME).split())


def edits(left, right):
    """The edit distance of two strings (Levenshtein 1966), a row of its table at a time."""
    a, b = [np.array([ord(c) for c in text], np.int64) for text in (left, right)]
    steps = np.arange(len(b) + 1)
    row = steps.copy()
    for i, character in enumerate(a):
        best = np.minimum(row[1:] + 1, row[:-1] + (b != character))
        row = np.minimum.accumulate(np.concatenate(([i + 1], best)) - steps) + steps
    return int(row[-1])


def error_rate(read, truth):
    return min(1.0, edits(normal(read), normal(truth)) / len(normal(truth)))


def cells_found(read, cells):
    """Cells whose row's name, column's name and text stand in one line of the text."""
    lines = [normal(line) for line in read.splitlines()]
    return [cell for cell in cells if any(all(normal(part) in line for part in cell) for line in lines)]
