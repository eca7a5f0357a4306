"""--help of every program and of each of its commands: what the usage lists is there, and every option that it shows is
one."""
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
TOOLS = ("retro-bench", "retro-eval", "retro-index")


def run(tool, *arguments):
    return subprocess.run([BUILD / tool, *arguments], capture_output=True, text=True, timeout=60)


def shown(tool, *arguments):
    done = run(tool, *arguments, "--help")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout


def commands(tool):
    return re.findall(r"^  ([a-z]+) ", shown(tool), re.MULTILINE)


@pytest.mark.parametrize("tool", TOOLS)
def test_every_command_has_its_own(tool):
    names = commands(tool)
    assert len(names) >= 4 and shown(tool).startswith(f"usage: {tool} COMMAND")
    for name in names:
        text = shown(tool, name)
        assert text.startswith(f"usage: {tool} {name} ") and max(map(len, text.splitlines())) <= 130
        for option, value in re.findall(r"^  (--?[a-z-]+)( [A-Z][^ ]*)?  +", text, re.MULTILINE):
            # Without its value an option is refused, but not as unknown; a flag is followed by one that is none.
            refused = run(tool, name, *([option] if value else [option, "--no-such-option"]))
            assert refused.returncode != 0 and refused.stdout == "", (name, option)
            unknown = re.search(r"unknown option|unrecognized option|invalid option", refused.stderr)
            assert bool(unknown) == (not value), (name, option, refused.stderr)
            assert value or "no-such-option" in refused.stderr, (name, option, refused.stderr)


@pytest.mark.parametrize("tool", TOOLS)
def test_help_is_found_among_options(tool):
    """Behind other options, and whatever they are missing."""
    option = {"retro-bench": ["--threads", "1"], "retro-eval": ["--set", "log.level=error"], "retro-index": ["--set", "log.level=error"]}
    name = {"retro-bench": "decode", "retro-eval": "ppl", "retro-index": "build"}[tool]
    assert shown(tool, name, *option[tool]) == shown(tool, name)


@pytest.mark.parametrize("tool", ["retro-convert", "retro-server"])
def test_programs_without_commands(tool):
    assert all(word in shown(tool) for word in (f"{tool} ", "  --"))


@pytest.mark.parametrize("tool", ["retro-convert", "retro-index"])
def test_exit_codes_are_those_of_the_page(tool):
    said = set(re.findall(r"\b(\d+) [a-z]", shown(tool).split("exit code: ")[1]))
    page = (ROOT / "docs/serving.md").read_text(encoding="utf-8")
    codes = re.search(r"^\| program \|( 0 .*)\|$", page, re.MULTILINE)[1].split("|")
    cells = re.search(rf"^\| `{tool}` \|(.*)\|$", page, re.MULTILINE)[1].split("|")
    assert said == {code.strip() for code, cell in zip(codes, cells, strict=True) if cell.strip()}


def test_a_text_may_look_like_an_option():
    """Arguments of retro-eval embed behind the folder are text."""
    done = run("retro-eval", "embed", "no/such/folder", "--help")
    assert done.returncode == 1 and "no/such/folder" in done.stderr and done.stdout == ""
