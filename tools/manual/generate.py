"""tools/manual/generate.py BUILD OUT [EMULATOR]: manual pages and completions of the programs in BUILD, laid out under
OUT/share as `make install` puts them. EMULATOR runs programs that were built for another machine."""

import pathlib
import sys

import completions
import man
import usage

def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def main(build, out):
    settings = usage.read_settings(build)
    share = out / "share"
    for name in usage.PROGRAMS:
        program = usage.read_program(build, name)
        write(share / f"man/man1/{name}.1", man.program_page(program))
        write(share / f"bash-completion/completions/{name}", completions.bash(program, settings))
        write(share / f"zsh/site-functions/_{name}", completions.zsh(program, settings))
        write(share / f"fish/vendor_completions.d/{name}.fish", completions.fish(program, settings))
    write(share / "man/man5/retro.json.5", man.settings_page(settings))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: generate.py BUILD OUT [EMULATOR]")
    usage.EMULATOR = sys.argv[3:]
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]))
