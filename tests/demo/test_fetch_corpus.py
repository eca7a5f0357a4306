"""tools/fetch_corpus.sh against packages made here: what is kept, what is left out, and that a second run fetches nothing.

apt-get is replaced by a script that hands out these packages, and only from private lists when told so."""

import gzip
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools/fetch_corpus.sh"
PACKAGES = ROOT / "tools/retro_docs/packages.txt"
APT_GET = """#!/bin/bash
echo "$*" >> "$APT_LOG"
case " $* " in *" update "*) exit 0 ;; esac
if [ -n "$STALE_LISTS" ] && [[ $* != *Dir::State::lists* ]]; then echo "E: no candidate" >&2; exit 100; fi
cp "$DEBS/${@: -1}.deb" . 2>/dev/null || { echo "E: Unable to locate package ${@: -1}" >&2; exit 100; }
"""


def corpus_table(name="manuals", end=")"):
    """The packages, folders and globs that the script asks for."""
    command = f"source <(sed -n '/^git_manuals()/,/^}}/p; /^{name}_corpus()/,/^{end}/p' {SCRIPT}); {name}_corpus"
    table = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout
    return [line.split() for line in table.splitlines()]


def write_page(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def make_package(folder, name, document_folder, globs):
    root = folder / name
    documents = root / document_folder
    for pattern in globs:
        place = documents / pattern.replace("*", "page")
        if re.match(r"man\d/", pattern):
            page = place.with_name("page.1.gz") if place.name == "page" else place
            write_page(page, ".TH PAGE 1\n.SH NAME\npage\n")
            write_page(place.with_name("alias.1.gz"), '.\\" a comment\n.so man1/page.1\n')
            link = place.parent / "link.1.gz"
            if not link.is_symlink():
                link.symlink_to(page.name)
            write_page(place.with_name("notes.txt"), "no manual")
        else:
            write_page(place, "<html><body>text</body></html>")
    write_page(documents / "changelog.html", "<html>never asked for</html>")
    write_page(documents / "de/man1/page.1.gz", ".TH SEITE 1\n")
    write_page(documents / "lang_naming.html", "<html>a list</html>")
    write_page(root / "usr/share/doc" / name / "copyright", f"the licence of {name}\n")
    write_page(root / "DEBIAN/control", f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n")
    return root


@pytest.fixture(scope="module")
def debs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("debs")
    for name, document_folder, *globs in corpus_table():
        root = make_package(folder, name, document_folder, globs)
        if name == "manpages-dev":  # as Debian has it: one documentation folder for both
            shutil.rmtree(root / "usr/share/doc" / name)
            (root / "usr/share/doc" / name).symlink_to("manpages")
        subprocess.run(["dpkg-deb", "--build", "-Znone", root, folder / f"{name}.deb"], check=True, capture_output=True)
    return folder


@pytest.fixture
def fetch(debs, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/apt-get").write_text(APT_GET)
    (tmp_path / "bin/apt-get").chmod(0o755)
    log = tmp_path / "apt.log"

    def run(stale="", packages=debs, arguments=("manuals",)):
        log.write_text("")
        environment = dict(
            os.environ,
            PATH=f"{tmp_path}/bin:{os.environ['PATH']}",
            DEBS=str(packages),
            APT_LOG=str(log),
            STALE_LISTS=stale,
        )
        done = subprocess.run([SCRIPT, tmp_path / "corpus", *arguments], env=environment, capture_output=True, text=True, timeout=600)
        return done, log.read_text().splitlines()

    run.corpus = tmp_path / "corpus"
    return run


def test_keeps_documents_and_licences(fetch):
    done, calls = fetch()
    assert done.returncode == 0, done.stderr
    packages = [row[0] for row in corpus_table()]
    assert [call.split()[-1] for call in calls] == packages
    assert sorted(p.name for p in (fetch.corpus / "text").iterdir()) == sorted(packages)
    assert sorted(p.name for p in (fetch.corpus / "copyright").iterdir()) == sorted(packages)
    assert (fetch.corpus / "copyright/manpages-dev").read_text() == "the licence of manpages\n"
    assert [p.name for p in (fetch.corpus / "text/coreutils").iterdir()] == ["page.1.gz"]
    names = {p.name for p in fetch.corpus.rglob("*") if p.is_file()}
    assert not names & {"alias.1.gz", "link.1.gz", "notes.txt", "changelog.html", "lang_naming.html"}
    assert not list(fetch.corpus.glob(".fetch*"))


def test_the_demo_has_a_part_of_them(fetch, debs, tmp_path):
    """The copyright file of manpages-dev is that of a package which is not of the set."""
    some = shutil.copytree(debs, tmp_path / "some", ignore=lambda folder, names: [n for n in names if not n.endswith(".deb")])
    for name, document_folder, *globs in corpus_table("demo"):
        root = make_package(tmp_path / "roots", name, document_folder, globs)
        subprocess.run(["dpkg-deb", "--build", "-Znone", root, some / f"{name}.deb"], check=True, capture_output=True)
    done, _ = fetch(packages=some, arguments=())
    assert done.returncode == 0, done.stderr
    assert {p.name for p in (fetch.corpus / "text").iterdir()} == {row[0] for row in corpus_table("demo")}
    assert {row[0] for row in corpus_table("demo")} < {row[0] for row in corpus_table()}
    asked = {"lseek.2.gz", "pipe.2.gz", "open.2.gz", "write.2.gz"}
    assert asked <= {p.name for p in (fetch.corpus / "text/manpages-dev").iterdir()}


def test_second_run_fetches_nothing(fetch):
    assert fetch()[0].returncode == 0
    done, calls = fetch()
    assert done.returncode == 0 and calls == [] and done.stdout == ""


def test_only_what_is_missing_is_fetched(fetch):
    assert fetch()[0].returncode == 0
    (fetch.corpus / ".complete/bash-doc").unlink()
    done, calls = fetch()
    assert done.returncode == 0 and [call.split()[-1] for call in calls] == ["bash-doc"]


def test_lists_of_its_own_when_the_machine_has_none(fetch):
    done, calls = fetch(stale="yes")
    assert done.returncode == 0, done.stderr
    assert sum(call.endswith(" update") for call in calls) == 1
    assert len(list((fetch.corpus / "text").iterdir())) == len(corpus_table())


def test_a_missing_package_is_named_and_the_rest_kept(fetch, debs, tmp_path):
    some = shutil.copytree(debs, tmp_path / "some", ignore=lambda folder, names: [n for n in names if not n.endswith(".deb")])
    (some / "git-doc.deb").unlink()
    done, _ = fetch(packages=some)
    assert done.returncode == 1 and "git-doc" in done.stderr
    assert not list(fetch.corpus.glob(".fetch*")) and not (fetch.corpus / "text/git-doc").exists()
    done, calls = fetch()
    assert done.returncode == 0 and calls[0].endswith(" git-doc")


MANUALS = ["man/man1/page.1.gz", "doc/x/html/page.html", "doc/x/en/mod/page.html"]
NO_MANUALS = ["man/de/man1/page.1.gz", "doc/x/html/de/page.html", "doc/x/html/pt-br/page.html", "doc/x/html/_sources/page.html",
              "doc/x/html/genindex.html", "doc/x/changelog.html", "doc/x/README.gz"]  # fmt: skip


def test_training_packages_are_kept_whole(fetch, tmp_path):
    packages = tmp_path / "whole"
    packages.mkdir()
    for (name,) in corpus_table("training", "}"):
        root = make_package(packages, name, "usr/share", [])
        for path in MANUALS + NO_MANUALS:
            write_page(root / "usr/share" / path, ".TH PAGE 1\n.SH NAME\npage\n")
        if name == "git-doc":  # the licence is in a package that is not asked for
            shutil.copytree(root, packages / "elsewhere")
            (packages / "elsewhere/usr/share/doc/git-doc").rename(packages / "elsewhere/usr/share/doc/elsewhere")
            shutil.rmtree(root / "usr/share/doc/git-doc")
            (root / "usr/share/doc/git-doc").symlink_to("elsewhere")
            subprocess.run(["dpkg-deb", "--build", "-Znone", packages / "elsewhere", packages / "elsewhere.deb"], check=True, capture_output=True)
        subprocess.run(["dpkg-deb", "--build", "-Znone", root, packages / f"{name}.deb"], check=True, capture_output=True)
    done, _ = fetch(packages=packages, arguments=["training"])
    assert done.returncode == 0, done.stderr
    names = {name for (name,) in corpus_table("training", "}")}
    assert {p.name for p in (fetch.corpus / "text").iterdir()} == names == {p.name for p in (fetch.corpus / "copyright").iterdir()}
    assert (fetch.corpus / "copyright/git-doc").read_text() == "the licence of git-doc\n"
    for name in names:
        folder = fetch.corpus / "text" / name
        assert sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()) == sorted(MANUALS)


MORE_MANUALS = [*MANUALS, "doc/x/html/en-US/page.html", "man/man3/page.3ssl.gz", "doc/x/html/mm/page.html"]
NO_MORE_MANUALS = ["doc/x/html/pt_BR/page.html", "doc/x/html/zh/page.html", "doc/x/html/class-members.html", "doc/x/html/src/page.html",
                   "doc/rust-doc/html/core/page.html", "doc/x/html/allclasses-index.html"]  # fmt: skip


def test_more_packages_join_those_of_training(fetch, tmp_path):
    """What is complete stays; of a further package sections and subjects with short names are kept, lists are not."""
    rows = corpus_table("training", "}") + [[line.split()[0]] for line in PACKAGES.read_text().splitlines() if line[0] != "#"]
    names = [name for (name,) in rows]
    assert len(set(names)) == len(names) > 120
    (fetch.corpus / ".complete").mkdir(parents=True)
    for name in names[:-1]:
        (fetch.corpus / ".complete" / name).write_text(name + "\n")
    packages = tmp_path / "more"
    root = make_package(packages, names[-1], "usr/share", [])
    for path in MORE_MANUALS + NO_MORE_MANUALS:
        write_page(root / "usr/share" / path, ".TH PAGE 1\n.SH NAME\npage\n")
    subprocess.run(["dpkg-deb", "--build", "-Znone", root, packages / f"{names[-1]}.deb"], check=True, capture_output=True)
    done, calls = fetch(packages=packages, arguments=["large"])
    assert done.returncode == 0 and len(calls) == 1, done.stderr
    kept = fetch.corpus / "text" / names[-1]
    assert sorted(p.relative_to(kept).as_posix() for p in kept.rglob("*") if p.is_file()) == sorted(MORE_MANUALS)


def test_every_package_has_a_licence():
    rows = [line.split(" ", 1) for line in PACKAGES.read_text().splitlines() if line[0] != "#"]
    assert all(len(row) == 2 and row[1].strip() for row in rows)


def test_an_unknown_set_is_refused(fetch):
    done, calls = fetch(arguments=["trainig"])
    assert done.returncode == 1 and "known are demo, manuals, training and large" in done.stderr and calls == []
