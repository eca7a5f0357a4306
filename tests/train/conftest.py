"""Tests of tools/retro_train. They need PyTorch: `make test-train` runs them in its own environment, `make test` does not."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))


@pytest.fixture(scope="session")
def build():
    """The folder of the C programs."""
    return ROOT / os.environ.get("RETRO_BUILD", "build")


@pytest.fixture(scope="session")
def deps():
    return Path(os.environ.get("RETRO_DEPS", Path.home() / ".cache/retro-server"))
