#!/usr/bin/env python3
"""tests/reading/score_fonts.py: pages in four languages whose fonts are subsets that name wrong characters, or none, read by `retro-index extract`
with OCR and without, and pages whose fonts are sound. Prints the share of wrong characters of each. docs/results/reading.md has the figures."""
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fonts  # noqa: E402
import scan_scores  # noqa: E402
import scan_texts  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
INDEX = ROOT / os.environ.get("RETRO_BUILD", "build") / "retro-index"
TEXTS = {language: " ".join(paragraphs[:3])[:1500].rpartition(" ")[0] for language, paragraphs in scan_texts.LANGUAGES.items()}
KINDS = {**fonts.KINDS, "no table": None, "sound": lambda text: text}


def error_of(path, text, *options):
    done = subprocess.run([INDEX, "extract", *options, path], capture_output=True, text=True)
    return scan_scores.error_rate(done.stdout, text)


def main():
    print("| font | pages | error without OCR | error | worst |\n|---|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "page.pdf"
        for kind, change in KINDS.items():
            plain, read = [], []
            for text in TEXTS.values():
                path.write_bytes(fonts.spoil(fonts.page_of(text, path), change))
                plain.append(error_of(path, text, "--no-ocr"))
                read.append(error_of(path, text))
            print(f"| {kind} | {len(read)} | {sum(plain) / len(plain):.4f} | {sum(read) / len(read):.4f} | {max(read):.4f} |", flush=True)


if __name__ == "__main__":
    main()
