"""tests/lint/lint.py: checks the project's rules on the tracked files of the working directory.

Every violation is one line, "file:line: rule"; the exit status is 1 when there is one. Needs git, universal-ctags and
clang-format, which `make deps` installs.
"""

import json
import pathlib
import re
import subprocess
import sys

# The folders that a folder's files may include. Tests see everything.
FOLDERS = ("config", "kernels", "retro", "retrieval", "server", "tools")
MAY_INCLUDE = {
    "config": {"config"},
    "kernels": {"config", "kernels"},
    "retro": {"config", "kernels", "retro"},
    "retrieval": {"config", "retrieval"},
    "server": {"config", "kernels", "retro", "retrieval", "server"},
    "tools": set(FOLDERS),
    "tests": set(FOLDERS) | {"tests"},
}

# Rooms of the server that its host and the tools do without. retro-bench measures the engine's own loop.
HOST_WITHOUT = ("server/http/", "server/api/", "server/schedule/", "server/threads/", "server/reading/", "server/pictures/",
                "server/documents/")
OF_THE_ENGINE = {"tools/bench/bench_retrieval.c": "server/schedule/engine.h"}


def room_allows(name, header):
    """Whether a file may include a header of the server, by the room that it is in."""
    if name.startswith("server/host/"):
        return not header.startswith(HOST_WITHOUT)
    if name.startswith("tools/") and header.startswith("server/"):
        return header.startswith("server/host/") or OF_THE_ENGINE.get(name) == header
    return True


# Each family of third-party headers has one door.
LIBRARIES = {
    "faiss": r"faiss/", "microhttpd": r"microhttpd", "jansson": r"jansson", "xxhash": r"xxhash",
    "sentencepiece": r"sentencepiece", "pcre2": r"pcre2", "utf8proc": r"utf8proc", "mpi": r"mpi\.h", "nccl": r"nccl",
    "libxml2's HTML parser": r"libxml/(HTML|parserInternals)", "libxml2's reader": r"libxml/xmlreader",
    "libarchive": r"archive(_entry)?\.h", "gmime": r"gmime/|glib", "gnutls": r"gnutls/", "jpeg": r"j(?:peglib|error)\.h", "png": r"png\.h",
    "webp": r"webp/", "zlib": r"zlib\.h", "libseccomp": r"seccomp\.h", "Landlock": r"linux/landlock\.h", "curl": r"curl/",
    "libyaml": r"yaml\.h", "sqlite": r"sqlite3\.h", "libxml2's tree": r"libxml/tree\.h",
}
TESTS_ONLY = {"cmocka": r"cmocka"}

MAX_FILE_LINES, MAX_LONG_FILE_LINES = 500, 1000  # long: kernels and tests
MAX_FUNCTION_LINES, MAX_KERNEL_LINES, MAX_TEST_FUNCTION_LINES, P90_FUNCTION_LINES = 60, 150, 100, 20
MAX_COLUMNS = 100
MAX_PARAMETERS = 6
# Functions whose signature a library prescribes.
LIBRARY_CALLBACKS = {("server/http/http.c", "handle"), ("server/http/tls.c", "retrieve")}

# Text that ties the project to one machine or to one package mirror. Recorded data may hold any words.
PRIVATE = re.compile(r"(?<![\w.])/(root|work)(?=[/\s\"'`]|$)")
REGISTRY = re.compile(r"pypi\.org|pythonhosted\.org|registry\.npmjs|crates\.io|proxy\.golang|deb\.debian\.org|"
                      r"conda\.anaconda|rubygems\.org", re.I)
RECORDED = re.compile(r"^(tests/(golden|fuzz/corpus|fuzz/crashes)|models)/.*\.(jsonl|json|txt)$|^tests/fuzz/c")

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def tracked_files():
    listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, check=True, text=True).stdout
    return [f for f in listed.split("\0") if f and pathlib.Path(f).is_file()]


def is_code(name):
    return name.endswith((".c", ".h", ".cc", ".cu", ".cuh"))


def check_includes(sources):
    """Include directions, includes from the root, and one includer for each library."""
    doors = {}
    for name, lines in sources.items():
        folder = name.split("/")[0]
        for number, line in enumerate(lines, 1):
            found = INCLUDE.match(line)
            if not found:
                continue
            quoted, header = found[1] == '"', found[2]
            if quoted and "/" not in header:
                yield f'{name}:{number}: "{header}" is not included from the root'
            elif quoted and header.split("/")[0] not in MAY_INCLUDE.get(folder, set()):
                yield f"{name}:{number}: {folder}/ may not include {header}"
            elif quoted and not room_allows(name, header):
                yield f"{name}:{number}: {'/'.join(name.split('/')[:2])} may not include {header}"
            for library, pattern in LIBRARIES.items():
                if re.match(pattern, header) and doors.setdefault(library, name) != name:
                    yield f"{name}:{number}: {library} is included by {doors[library]} already"
            for library, pattern in TESTS_ONLY.items():
                if re.match(pattern, header) and folder != "tests":
                    yield f"{name}:{number}: {library} is for tests only"


def reached(folder, includes):
    """The folders that a folder's files include, directly or by others."""
    found, todo = set(), [folder]
    while todo:
        new = set(includes.get(todo.pop(), {})) - found
        found |= new
        todo += new
    return found


def check_circles(sources):
    """No two folders include each other, directly or by others."""
    includes = {}
    for name, lines in sources.items():
        folder = str(pathlib.PurePath(name).parent)
        for number, line in enumerate(lines, 1):
            found = INCLUDE.match(line)
            other = found and found[1] == '"' and str(pathlib.PurePath(found[2]).parent)
            if other and other != folder and not name.startswith("tests/"):
                includes.setdefault(folder, {}).setdefault(other, f"{name}:{number}")
    named = set()
    for folder in sorted(includes):
        circle = {other for other in reached(folder, includes) if folder in reached(other, includes)}
        if not circle <= named:
            first = min(includes[folder][other] for other in circle & includes[folder].keys())
            yield f"{first}: the folders {', '.join(sorted(circle))} include each other"
        named |= circle


def parameters(signature):
    """How many parameters a C signature lists."""
    inner, depth, count = signature.strip()[1:-1], 0, 1
    for c in inner:
        depth += (c in "([") - (c in ")]")
        count += c == "," and depth == 0
    return 0 if inner.strip() in ("", "void") else count


def functions(names):
    """(file, line, name, lines, signature) of every function definition."""
    command = ["ctags", "--languages=C,C++", "--langmap=C++:+.cu.cuh", "--kinds-C=f", "--kinds-C++=f", "--fields=+neS",
               "--output-format=json", "-f", "-", "-L", "-"]
    tags = subprocess.run(command, input="\n".join(names), capture_output=True, check=True, text=True).stdout
    for tag in map(json.loads, tags.splitlines()):
        yield tag["path"], tag["line"], tag["name"], tag.get("end", tag["line"]) - tag["line"] + 1, tag.get("signature", "()")


def check_sizes(sources):
    """Lines of files and functions, parameters of functions."""
    for name, lines in sources.items():
        limit = MAX_LONG_FILE_LINES if name.startswith(("tests/", "kernels/")) else MAX_FILE_LINES
        if len(lines) > limit:
            yield f"{name}:{len(lines)}: {len(lines)} lines in the file, at most {limit}"
    lengths = []
    for name, line, function, length, signature in functions(sources):
        is_test = name.startswith("tests/")
        if not is_test:
            lengths.append((length, name, line, function))
        limit = MAX_TEST_FUNCTION_LINES if is_test else MAX_FUNCTION_LINES
        limit = MAX_KERNEL_LINES if name.startswith("kernels/") else limit
        if length > limit:
            yield f"{name}:{line}: {function} has {length} lines, at most {limit}"
        if parameters(signature) > MAX_PARAMETERS and (name, function) not in LIBRARY_CALLBACKS:
            yield f"{name}:{line}: {function} has {parameters(signature)} parameters, at most {MAX_PARAMETERS}"
    lengths.sort()
    if lengths:
        length, name, line, function = lengths[(len(lengths) * 9 - 1) // 10]
        if length > P90_FUNCTION_LINES:
            yield f"{name}:{line}: one function in ten has {length} lines or more, at most {P90_FUNCTION_LINES}"


STRUCT = re.compile(r"^(?:static |const )*struct (\w+) \{")
# One type for each instruction set: only one of these is in a translation unit.
ONE_OF_SEVERAL = re.compile(r"kernels/cpu/x86/\w+_(avx2|avx512)\.h$")


def check_tags(sources):
    """A struct tag stands for one thing in the whole tree; tests may have their own."""
    first = {}
    for name, lines in sources.items():
        if name.startswith("tests/") or ONE_OF_SEVERAL.match(name):
            continue
        for number, line in enumerate(lines, 1):
            found = STRUCT.match(line)
            if found and first.setdefault(found[1], name) != name:
                yield f"{name}:{number}: struct {found[1]} is defined in {first[found[1]]} already"


# One letter says nothing: the share of identifiers of one letter never rises. Names of libraries and tests count not.
MOST_LETTERS, FEW_NAMES = 11.5, 1000  # per cent; of fewer names a share says nothing
NO_NAMES = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|^\s*#\s*include[^\n]*", re.S | re.M)
NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*|(?<=\.)[A-Za-z_]\w*")
KEYWORDS = set("""auto bool break case char class const continue default do double else enum extern false float for goto if
    inline int long namespace new nullptr NULL register restrict return short signed sizeof static struct switch template
    this true typedef union unsigned using void volatile while _Atomic""".split())


def letter_share(sources):
    """The share of identifiers that are one letter, in per cent, of all files but tests."""
    letters = names = 0
    for name, lines in sources.items():
        if not name.startswith("tests/"):
            found = [n for n in NAME.findall(NO_NAMES.sub(" ", "\n".join(lines))) if n not in KEYWORDS]
            letters += sum(len(n) == 1 for n in found)
            names += len(found)
    return 100 * letters / names if names >= FEW_NAMES else 0


def check_letters(share):
    if share > MOST_LETTERS:
        yield f"tests/lint/lint.py:1: {share:.1f} % of all identifiers are single letters, at most {MOST_LETTERS}"


# A sentence has a subject: "What is mapped counts as nothing" is no sentence, "mapped files are not counted" is one.
HEADLESS = re.compile(r"(?:/\*+ |^ \* |\. )(?:What|Which|Who|Whose) [^?]*$")
# An effect is a statement of its own.
EFFECT_IN_INDEX = re.compile(r"\[[^]\"']*(?:\+\+|--)[^]\"']*\]")
# The rooms and files that these two rules have not reached.
STYLE_WITHOUT = ("kernels/cpu/sample.c",)


def check_style(sources):
    """Comments without a subject, and effects inside of an index."""
    for name, lines in sources.items():
        if name.startswith(STYLE_WITHOUT):
            continue
        for number, line in enumerate(lines, 1):
            comment = "/*" in line or line.lstrip().startswith("*")
            if comment and HEADLESS.search(line):
                yield f"{name}:{number}: a sentence that begins with what, which or who has no subject"
            elif not comment and '"' not in line and EFFECT_IN_INDEX.search(line):
                yield f"{name}:{number}: an effect inside of an index is a statement of its own"


def check_format(sources):
    run = subprocess.run(["clang-format", "--dry-run", "-Werror", "--ferror-limit=1", *sources], capture_output=True,
                         text=True)
    found = re.findall(r"^(.+?):(\d+):\d+: error: ", run.stderr, re.M)
    for name, line in found:
        yield f"{name}:{line}: not in the project's format; run make format"
    if run.returncode != 0 and not found:
        yield f".clang-format:1: clang-format failed: {run.stderr.strip()[:200]}"


def check_opening(sources):
    for name, lines in sources.items():
        if not lines or not lines[0].startswith(f"/* {name}"):
            yield f"{name}:1: the first line is not a comment that names the file: /* {name}: ..."


def check_private(names):
    for name in names:
        data = pathlib.Path(name).read_bytes()
        if RECORDED.match(name) or b"\0" in data[:8192]:
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            if PRIVATE.search(line):
                yield f"{name}:{number}: a path of one machine: {PRIVATE.search(line)[0]}"
            if REGISTRY.search(line):
                yield f"{name}:{number}: a package registry's host name: {REGISTRY.search(line)[0]}"


def main():
    names = tracked_files()
    sources = {n: pathlib.Path(n).read_text(encoding="utf-8").splitlines() for n in names if is_code(n)}
    share = letter_share(sources)
    checks = (check_letters(share), check_includes(sources), check_circles(sources), check_sizes(sources), check_tags(sources), check_style(sources),
              check_format(sources), check_opening(sources), check_private(names))
    violations = [v for check in checks for v in check]
    columns = [len(line) for name, lines in sources.items() if not name.startswith("tests/") for line in lines]
    facts = (f"{share:.1f} % of the identifiers are single letters, {sum(columns) / max(len(columns), 1):.0f} characters a line, "
             f"{100 * sum(n > MAX_COLUMNS for n in columns) / max(len(columns), 1):.1f} % of the lines over {MAX_COLUMNS}")
    print("\n".join(violations) if violations else f"lint: {len(names)} files, no violations; {facts}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
