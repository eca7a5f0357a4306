"""tests/reference/make_schema_suite.py: python3 tests/reference/make_schema_suite.py SUITE: the cases of a checkout of
json-schema-org/JSON-Schema-Test-Suite that tests/unit/test_schema.c runs, as tests/schemas/suite.json; its licence beside
it. Left out are remote references, other dialects, and keywords for which no grammar exists at all."""
import json
import pathlib
import sys

FILES = """additionalProperties allOf anyOf boolean_schema const default defs enum exclusiveMaximum exclusiveMinimum
infinite-loop-detection items maxItems maxLength maxProperties maximum minItems minLength minProperties minimum oneOf
pattern patternProperties prefixItems properties ref required type uniqueItems not if-then-else multipleOf contains
dependentRequired propertyNames optional/format/date optional/format/date-time optional/format/time
optional/format/duration optional/format/uuid optional/format/ipv4 optional/format/ipv6 optional/format/email
optional/format/hostname optional/format/uri optional/ecmascript-regex optional/non-bmp-regex""".split()

suite = pathlib.Path(sys.argv[1])
here = pathlib.Path(__file__).resolve().parents[1] / "schemas"
groups = []
for name in FILES:
    for group in json.loads((suite / f"tests/draft2020-12/{name}.json").read_text()):
        if isinstance(group["schema"], dict):
            group["schema"].pop("$schema", None)
        tests = [{"data": t["data"], "valid": t["valid"], "description": t["description"]} for t in group["tests"]]
        groups.append({"file": name, "description": group["description"], "schema": group["schema"], "tests": tests})
lines = ",\n".join(json.dumps(g, ensure_ascii=False, separators=(",", ":")) for g in groups)
(here / "suite.json").write_text(f"[\n{lines}\n]\n")
(here / "LICENSE").write_text((suite / "LICENSE").read_text())
