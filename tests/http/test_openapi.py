"""The description against the server: schemathesis makes requests from /openapi.json, within it and beside it."""
import json
import re
import shutil
import subprocess
import sys

CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
          "unsupported_method")


def test_no_answer_contradicts_the_description(start, config, tmp_path):
    # Its requests add documents and delete them: in a collection that no other test searches.
    collection = tmp_path / "collection"
    shutil.copytree(json.loads(config.read_text())["retrieval"]["collection"], collection)
    server = start("model.name=m", f"retrieval.collection={collection}")
    command = [sys.executable, "-m", "schemathesis.cli", "run", server.url + "/openapi.json", "--max-examples", "40",
               "--phases", "fuzzing", "--checks", ",".join(CHECKS), "--seed", "1", "--workers", "2", "--request-timeout", "120",
               "--suppress-health-check", "too_slow"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    cases = int(re.search(r"(\d+) generated", done.stdout)[1])
    assert cases >= 200, done.stdout
