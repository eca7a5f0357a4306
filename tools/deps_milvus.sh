#!/usr/bin/env bash
# Unpacks a standalone Milvus into PREFIX/milvus, from a pinned PyPI package of 58 MB; called by `make milvus-test`, safe to
# call again.
#
#   tools/deps_milvus.sh PREFIX
#
# It is apart from `make deps` because only these tests need it: `make test` has a fake one.
set -euo pipefail

prefix=${1:?usage: deps_milvus.sh PREFIX}
requirements=$(cd "$(dirname "$0")" && pwd)/requirements-milvus.txt
stamp=$prefix/.milvus.done
content=$(cksum < "$requirements")

say() { printf '\033[1mdeps-milvus:\033[0m %s\n' "$*"; }

if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$content" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    say "fetching Milvus"
    rm -rf "$prefix/milvus" "$stamp"
    "$prefix/venv/bin/pip" download -q --no-deps --require-hashes -d "$work" -r "$requirements"
    "$prefix/venv/bin/python" - "$work" "$prefix/milvus" << 'END'
import lzma, pathlib, shutil, sys, zipfile

work, to = map(pathlib.Path, sys.argv[1:])
(to / "bin").mkdir(parents=True)
with zipfile.ZipFile(next(work.glob("*.whl"))) as wheel:
    for name in wheel.namelist():
        path = pathlib.PurePath(name)
        if path.suffix == ".lzma":
            with lzma.open(wheel.open(name)) as packed, open(to / "bin" / path.stem, "wb") as out:
                shutil.copyfileobj(packed, out)
            (to / "bin" / path.stem).chmod(0o755)
        elif path.name in ("config.yaml.template", "glog.conf"):
            (to / path.name).write_bytes(wheel.read(name))
END
    echo "$content" > "$stamp"
fi
say "complete in $prefix/milvus"
