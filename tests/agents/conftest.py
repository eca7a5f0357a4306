"""The fixtures of tests/http, for agents, which have an environment of their own (make agents-test)."""
import importlib.util
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("http_fixtures", ROOT / "tests/http/conftest.py")
http = importlib.util.module_from_spec(spec)
sys.modules["http_fixtures"] = http
spec.loader.exec_module(http)
config, server = http.config, http.server
sys.path.insert(0, str(ROOT / "tests/http"))  # agent_model.py
