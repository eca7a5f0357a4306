"""What the programs' command lines take and the options of retro.json, read from the programs' own --help, which they
print from their tables. Manual pages and completions are made of these."""

import dataclasses
import re
import subprocess

EMULATOR = []  # words that stand before a program
PROGRAMS = ("retro-server", "retro-index", "retro-eval", "retro-bench", "retro-convert")
OPTION = re.compile(r"^  (--[\w-]+)(?: ([A-Z][^ ]*|[a-z]+(?=  )))? +(\S.*)$")
COMMAND = re.compile(r"^  ([a-z]\w*) +(\S.*)$")
SETTING = re.compile(
    r"^  (\w+\.\w+) +(.*) \((an? \w+|true or false|one of|a list of \w+)(?:, (.*?))?; default (.*)\)$"
)


@dataclasses.dataclass
class Option:
    name: str  # "--out"
    value: str  # "DIR", empty for a flag
    help: str
    choices: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Command:
    """What follows a program's name: the name of a command, or nothing where the program has none."""

    name: str
    synopses: list  # "--out DIR --config FILE [OPTION...] PATH..."
    help: str = ""
    options: list = dataclasses.field(default_factory=list)
    examples: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Program:
    name: str
    summary: str
    commands: list
    exit_status: str


@dataclasses.dataclass
class Setting:
    """An option of retro.json."""

    name: str  # "retrieval.k"
    type: str
    default: str
    allowed: str
    help: str

    @property
    def choices(self):
        if self.type == "true or false":
            return ["true", "false"]
        return self.allowed.split(", ") if self.type == "one of" else []


def help_of(build, program, *arguments):
    shown = subprocess.run([*EMULATOR, build / program, *arguments, "--help"], capture_output=True, text=True, check=True)
    return shown.stdout.splitlines()


def read_options(lines, synopses):
    """The rows of options; a line that is indented further goes on with the help before it."""
    options, open_row = [], False
    for line in lines:
        found = OPTION.match(line)
        if found:
            options.append(Option(found[1], found[2] or "", found[3]))
        elif open_row and line.startswith(" " * 8):
            options[-1].help += " " + line.strip()
        open_row = bool(found) or (open_row and line.startswith(" " * 8))
    for option in options:
        listed = re.search(rf"{option.name} ([a-z]\w*(?:\|\w+)+)", " ".join(synopses))
        option.choices = listed[1].split("|") if listed else []
    return options


def read_examples(lines):
    if "examples:" not in lines:
        return []
    return [line.strip() for line in lines[lines.index("examples:") + 1 :]]


def read_synopses(lines, program, name=""):
    """The lines of "usage:", each without what it begins with."""
    prefix, found = f"{program} {name}".strip(), []
    for line in lines:
        text = line.removeprefix("usage:").strip()
        if text.startswith(prefix + " ") and (line.startswith(("usage:", "       ")) or line.startswith(f"  {prefix}")):
            found.append(text.removeprefix(prefix).strip())
        elif found and line.startswith(" " * 20):
            found[-1] += " " + text
        elif found:
            break
    return found


def read_paragraphs(lines, program):
    """Text between the blocks of options; neither headings nor what is read by itself."""
    apart = ("usage:", f"{program}: ", "exit code: ", " ")
    return [line for line in lines if line and not line.startswith(apart) and not line.endswith(":")]


def read_command(build, program, name):
    lines = help_of(build, program, name)
    words = [line.strip() for line in lines[1:] if re.match(r"^  (?!--| )", line)]
    examples = read_examples(lines)
    help_lines = [word for word in words if word not in examples]
    synopses = read_synopses(lines, program, name)
    return Command(name, synopses, " ".join(help_lines), read_options(lines, synopses), examples)


def read_program(build, program):
    lines = help_of(build, program)
    summary = next(line.split(": ", 1)[1] for line in lines if line.startswith(f"{program}: "))
    status = next((line.split(": ", 1)[1] for line in lines if line.startswith("exit code: ")), "")
    commands = []
    if lines[0].startswith(f"usage: {program} COMMAND"):
        names = [found[1] for line in lines[1:] if (found := COMMAND.match(line))]
        commands = [read_command(build, program, name) for name in names]
    else:
        synopses = read_synopses(lines, program)
        end = lines.index("Options:") if "Options:" in lines else len(lines)
        help_text = " ".join(read_paragraphs(lines[:end], program))
        commands = [Command("", synopses, help_text, read_options(lines[:end], synopses))]
    return Program(program, summary, commands, status)


def read_settings(build):
    found = [SETTING.match(line) for line in help_of(build, "retro-server")]
    return [Setting(m[1], m[3], m[5], m[4] or "", m[2]) for m in found if m]
