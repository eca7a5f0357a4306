"""Manual pages in mdoc: one for each program, and retro.json(5)."""

import datetime
import os
import re
import textwrap

from usage import PROGRAMS

DOCUMENTATION = "share/doc/retro-server/docs"


def escape(text):
    """Text as mdoc takes it: no macro, no escape, a line for each sentence, none longer than 80."""
    text = text.replace("\\", "\\e").replace("--", "\\-\\-")
    sentences = re.split(r"(?:(?<=[^.A-Z][.?!:])|(?<=[A-Z]{2}[.?!:])) +(?=[A-Z])", text)
    lines = [line for sentence in sentences for line in textwrap.wrap(sentence, 78, break_on_hyphens=False)]
    return "\n".join(re.sub(r"^(?=[.'])", r"\\&", line) for line in lines)


def sentence(text):
    """The same of a text of --help, which ends without a full stop."""
    return escape(text.rstrip(".") + ".")


def argument(word):
    """A word that follows a macro, where mdoc would take it for one."""
    word = escape(word).replace('"', "\\(dq")
    return "\\&" + word if re.fullmatch(r"[A-Z][a-z]|[A-Za-z]\d|[.,:;()\[\]?!|]", word) else word


def flag(name):
    return "Fl " + "\\-" + name.removeprefix("--").replace("-", "\\-")


def synopsis_word(word):
    dots = " ..." if word.endswith("...") else ""
    word = word.removesuffix("...")
    if word.startswith("--"):
        return flag(word)
    return f"Ar {argument(word)}{dots}"


def synopsis_lines(text):
    """"--out DIR [--keep PATTERN]... PATH..." as macros, a line each."""
    for group in re.findall(r"\[[^\]]*\](?:\.\.\.)?|--[\w-]+ [A-Za-z][\w|.]*|\S+", text):
        optional = group.startswith("[")
        dots = " ..." if optional and group.endswith("]...") else ""
        words = group.removesuffix("...").strip("[]").split() if optional else group.split()
        if words == ["OPTION..."]:
            yield ".Op Ar option ..."
            continue
        macros = " ".join(synopsis_word(word) for word in words)
        yield f".{'Op ' if optional else ''}{macros}{dots}"


def option_lines(options):
    yield ".Bl -tag -width Ds"
    for option in options:
        value = f" Ar {argument(option.value)}" if option.value else ""
        yield f".It {flag(option.name)}{value}"
        yield sentence(option.help)
        if option.choices:
            yield f"One of {', '.join(option.choices)}."
    yield ".El"


def head(name, section):
    moment = int(os.environ.get("SOURCE_DATE_EPOCH", datetime.datetime.now().timestamp()))
    day = datetime.datetime.fromtimestamp(moment, datetime.timezone.utc)
    yield f".Dd {day.strftime('%B')} {day.day}, {day.year}"
    yield f".Dt {name.upper()} {section}"
    yield ".Os"
    yield ".Sh NAME"
    yield f".Nm {name}"


def command_lines(program):
    """What the program does, and where it has commands, a part for each."""
    if len(program.commands) == 1:
        command = program.commands[0]
        yield sentence(command.help) if command.help else f".Nm :\n{sentence(program.summary)}"
        yield ".Pp\nThe options are:"
        yield from option_lines(command.options)
        return
    yield ".Nm\nhas these commands:"
    yield ".Bl -tag -width Ds"
    for command in program.commands:
        yield f".It Cm {argument(command.name)}"
        yield sentence(command.help)
        if command.options:
            yield from option_lines(command.options)
    yield ".El"


def example_lines(program):
    examples = [example for command in program.commands for example in command.examples]
    if examples:
        yield ".Sh EXAMPLES\n.Bd -literal"
        yield from (example.replace("\\", "\\e") for example in examples)
        yield ".Ed"


def synopsis(program):
    yield ".Sh SYNOPSIS"
    for command in program.commands:
        for text in command.synopses:
            yield f".Nm\n.Cm {argument(command.name)}" if command.name else ".Nm"
            yield from synopsis_lines(text)


def program_page(program):
    """The text of PROGRAM.1."""
    lines = [*head(program.name, 1), f".Nd {escape(program.summary)}", *synopsis(program)]
    lines += [".Sh DESCRIPTION", *command_lines(program)]
    lines += [".Sh ENVIRONMENT\n.Bl -tag -width Ds", ".It Ev RETRO_CPU"]
    lines += ["A lesser set of instructions to compute with than the processor's:", "generic, avx2 and others.\n.El"]
    if program.exit_status:
        lines += [".Sh EXIT STATUS", sentence(program.exit_status)]
    lines += example_lines(program)
    others = [other for other in PROGRAMS if other != program.name]
    lines += [".Sh SEE ALSO", *(f".Xr {other} 1 ," for other in sorted(others)), ".Xr retro.json 5"]
    lines += [".Pp", f"The pages of the documentation, in\n.Pa {DOCUMENTATION}", "beside the programs' folder."]
    return "\n".join(lines) + "\n"


def setting_lines(setting):
    name = argument(setting.name)
    yield f".It Cm {name}"
    yield sentence(setting.help)
    words = [setting.type] + ([setting.allowed.replace("..", "to")] if setting.allowed else [])
    if setting.type == "one of":
        words = [f"one of {setting.allowed}"]
    yield sentence(f"{', '.join(words).capitalize()}; default {setting.default}")


def settings_page(settings):
    """The text of retro.json.5."""
    lines = [*head("retro.json", 5), ".Nd configuration of retro-server and of the tools beside it"]
    lines += [".Sh DESCRIPTION", "A JSON object of sections, each an object of options."]
    lines += ["Below, an option is written with its section before it:", ".Cm retrieval.k"]
    lines += ["is in the file", ".Bd -literal -offset indent", '{"retrieval": {"k": 2}}', ".Ed", ".Pp"]
    lines += ["An unknown option, a wrong type or a value out of range is refused", "with file and line."]
    lines += ["A relative path is relative to the folder of the file."]
    lines += [".Ic retro-server --check-config\nchecks a file,\n.Ic retro-server --print-config\nshows all values in effect."]
    section = ""
    for setting in settings:
        if setting.name.split(".")[0] != section:
            lines += [".El"] if section else []
            section = setting.name.split(".")[0]
            lines += [f".Ss {section}", ".Bl -tag -width Ds"]
        lines += setting_lines(setting)
    lines += [".El", ".Sh FILES", ".Bl -tag -width Ds", ".It Pa /etc/retro-server/retro.json"]
    lines += ["The file that the service reads.", ".El", ".Sh SEE ALSO", ".Xr retro-index 1 ,", ".Xr retro-server 1"]
    return "\n".join(lines) + "\n"
