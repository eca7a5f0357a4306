#!/usr/bin/env bash
# tests/lint.sh: the rules of docs/architecture.md that a machine can check, on every tracked file; `make lint` calls it.
cd "$(dirname "$0")/.." && exec python3 tests/lint/lint.py
