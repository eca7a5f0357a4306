"""Manual pages and completions: what --help lists is in them, mandoc finds nothing wrong, and shells take them."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
SHARE = BUILD / "manual/share"
PROGRAMS = ["retro-server", "retro-index", "retro-eval", "retro-bench", "retro-convert"]
WITH_COMMANDS = ["retro-index", "retro-eval", "retro-bench"]
PAGES = [SHARE / "man/man5/retro.json.5", *(SHARE / f"man/man1/{name}.1" for name in PROGRAMS)]


def output(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, **options).stdout


def help_of(*command):
    return output(BUILD / command[0], *command[1:], "--help")


def commands_of(program):
    return re.findall(r"^  ([a-z]\w*) ", help_of(program), re.MULTILINE) if program in WITH_COMMANDS else []


def options_of(text):
    return re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE)


def read(page):
    """A page as a terminal shows it, without bold and underlined letters, in lines of any length."""
    shown = output("mandoc", "-T", "utf8", "-O", "width=1000", page)
    return re.sub(r".\x08", "", shown).replace("\N{MINUS SIGN}", "-")


@pytest.mark.parametrize("program", PROGRAMS)
def test_wrong_arguments_are_told_and_exit_with_1(program):
    """The rule of docs/serving.md: 2 means that files were skipped, by retro-index alone."""
    for word in ("nosuch", "--nosuch") if program in WITH_COMMANDS else ("--nosuch",):
        done = subprocess.run([BUILD / program, word], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and done.stdout == "" and word in done.stderr, done


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_mandoc_finds_nothing(page):
    done = subprocess.run(["mandoc", "-T", "lint", page], capture_output=True, text=True, timeout=60)
    wrong = []
    for line in (done.stdout + done.stderr).splitlines():
        # It looks for other pages among the installed ones only.
        other = re.search(r"referenced manual not found: Xr (\S+) (\d)", line)
        if not (other and (SHARE / f"man/man{other[2]}/{other[1]}.{other[2]}").is_file()):
            wrong.append(line)
    assert wrong == []


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_page_has_all_commands_and_options(program):
    page = read(SHARE / f"man/man1/{program}.1")
    for command in commands_of(program):
        assert re.search(rf"^ +{program} {command}( |$)", page, re.MULTILINE), command
    expected = [options_of(help_of(program, *names)) for names in ([[c] for c in commands_of(program)] or [[]])]
    found = re.findall(r"^ +(--[a-z-]+)", page, re.MULTILINE)
    for options in expected:
        assert set(options) <= set(found)


def test_the_page_of_the_configuration_has_all_options():
    printed = json.loads(output(BUILD / "retro-server", "--print-config"))
    page = read(SHARE / "man/man5/retro.json.5")
    names = [f"{section}.{name}" for section, options in printed.items() for name in options]
    assert re.findall(r"^ +((?:%s)\.\w+)$" % "|".join(printed), page, re.MULTILINE) == names
    assert "an integer, 0 to 65535; default 8080." in page.lower()
    assert r'default "[{number}] {title}\n{text}\n\n".' in page


def complete(program, line):
    """What bash offers behind a line."""
    words = json.dumps(line)
    script = f"""
        source "{SHARE}/bash-completion/completions/{program}"
        COMP_LINE={words}; COMP_POINT=${{#COMP_LINE}}; COMP_WORDS=($COMP_LINE)
        [[ $COMP_LINE != *' ' ]] || COMP_WORDS+=("")
        COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        _{program.replace("-", "_")} 2> /dev/null
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return output("bash", "-c", script, cwd=ROOT).split()


@pytest.mark.parametrize("program", PROGRAMS)
def test_bash_offers_commands_and_their_options(program):
    if commands_of(program):
        assert complete(program, f"{program} ") == commands_of(program) + ["--help"]
    for names in [[c] for c in commands_of(program)] or [[]]:
        wanted = {*options_of(help_of(program, *names)), "--help"}
        assert set(complete(program, " ".join([program, *names, "-"]))) == wanted


def test_bash_offers_what_follows_an_option():
    assert complete("retro-server", "retro-server --set retrieval.gr") == ["retrieval.grid="]
    assert complete("retro-server", "retro-server --set retrieval.grid=e") == ["end"]
    assert complete("retro-server", "retro-server --set server.page=") == ["true", "false"]
    assert complete("retro-index", "retro-index build --set model.pa") == ["model.path="]
    assert complete("retro-index", "retro-index build --config READ") == ["README.md"]
    assert complete("retro-index", "retro-index build --out mod") == ["models"]
    assert complete("retro-index", "retro-index search --k ") == []
    assert complete("retro-convert", "retro-convert model out --to q") == []
    assert complete("retro-convert", "retro-convert model out --to int") == ["int8", "int4"]


@pytest.mark.parametrize("shell, files", [("zsh", "zsh/site-functions/_*"), ("fish", "fish/vendor_completions.d/*")])
def test_other_shells_take_theirs(shell, files):
    found = sorted(SHARE.glob(files))
    assert len(found) == len(PROGRAMS)
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    for file in found:
        output(shell, "-n", file)


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_offers_commands_and_options():
    def offered(line):
        program = line.split()[0]
        script = f"source {SHARE}/fish/vendor_completions.d/{program}.fish; complete -C {json.dumps(line)}"
        shown = output("fish", "--no-config", "-c", script, cwd=ROOT)
        return [answer.split("\t")[0] for answer in shown.splitlines()]

    assert set(commands_of("retro-index")) <= set(offered("retro-index "))
    assert {"--out", "--config", "--set"} <= set(offered("retro-index build --"))
    assert "--out" not in offered("retro-index search --")
    assert offered("retro-server --set retrieval.grid") == ["retrieval.grid=end", "retrieval.grid=start"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_offers_commands_and_options(tmp_path):
    """In a terminal of its own, as its completion needs one: what Tab makes of the line."""
    def completed(line):
        script = f"""
            zmodload zsh/zpty
            zpty shell 'TERM=dumb ZDOTDIR={tmp_path} PS1= zsh -f -i'
            zpty -w shell 'fpath=({SHARE}/zsh/site-functions $fpath); autoload -Uz compinit; compinit -u -D; cd {ROOT}'
            zpty -w shell 'bindkey "^I" complete-word; report() {{ print -r -- "<$BUFFER>" }}; zle -N report'
            zpty -w shell 'bindkey "^X" report; print ready-now'
            zpty -r shell out '*ready-now*ready-now*'
            zpty -n -w shell $'{line}\\t\\x18'
            zpty -r shell out '*<*>*'
            print -r -- $out
        """
        shown = output("zsh", "-f", "-c", script)
        return re.findall(r"<(.*)>", shown)[-1]

    assert completed("retro-index sna") == "retro-index snapshot "
    assert completed("retro-index search --expl") == "retro-index search --explain "
    assert completed("retro-convert --to pac") == "retro-convert --to packed "
    assert completed("retro-server --set retrieval.gr") == "retro-server --set retrieval.grid="
    assert completed("retro-server --set retrieval.grid=s") == "retro-server --set retrieval.grid=start "
