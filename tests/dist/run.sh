#!/usr/bin/env bash
# tests/dist/run.sh ARCHIVE EMBEDDER [SUITE...]: unpacks the archive that `make dist` made as a user on bare systems, which
# debootstrap makes in a temporary folder and which are removed, and asks a server there about a text, a page and, by HTTPS, a PDF.
# Needs root, for chroot. SYSTEMS=FOLDER keeps the bare systems there for the next run. A system where something goes wrong
# is left for the next one. One line for each says whether it passed, and the last line how many did; status 1 if any failed.
set -euo pipefail
usage="usage: run.sh ARCHIVE EMBEDDER [SUITE...]"
archive=$(realpath "${1:?$usage}") embedder=$(realpath "${2:?$usage}")
here=$(cd "$(dirname "$0")" && pwd)
suites=("${@:3}")
[ "${#suites[@]}" != 0 ] || suites=(bullseye bookworm trixie jammy noble)
name=$(basename "$archive" .tar.gz)
work=$(mktemp -d /var/tmp/retro-dist.XXXXXX)
home=/home/reader server='' trial=''

say() { printf '%s: %s\n' "$suite" "$*"; }
fail() { say "$*" >&2; exit 1; }

# What a trial leaves of its system.
release_system() {
    [ -z "$server" ] || kill "$server" 2> /dev/null || true
    for mount in dev proc; do ! mountpoint -q "$system/$mount" || umount -l "$system/$mount"; done
    rm -rf --one-file-system "$system"
}

release() {
    if [ -n "$trial" ]; then
        kill -- "-$trial" 2> /dev/null || true
        wait "$trial" || true
    fi
    rm -rf --one-file-system "$work"
}
trap release EXIT
trap 'exit 130' INT TERM

as_root_there() { chroot "$system" env -i HOME=/ PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }
reader=(env -i HOME="$home" PATH=/usr/bin:/bin LC_ALL=C.UTF-8)
as_reader() { chroot --userspec=1000:1000 "$system" "${reader[@]}" "$@"; }

# A system of its own, or a copy of one that is kept.
make_bare() {
    local made=$system
    [ -z "${SYSTEMS:-}" ] || made=$SYSTEMS/$suite
    if [ ! -e "$made/.complete" ]; then
        rm -rf --one-file-system "$made"
        "$here/../../tools/bare_system.sh" "$suite" "$made"
        touch "$made/.complete"
    fi
    [ "$made" = "$system" ] || cp -a "$made" "$system"
}

make_system() {
    make_bare
    mount -t proc proc "$system/proc"
    mount --bind /dev "$system/dev"
    mkdir -p "$system$home/documents"
    cp "$archive" "$system$home"
    cp -r "$embedder" "$system$home/embedder"
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=dist -addext subjectAltName=IP:127.0.0.1 \
        -keyout "$system$home/tls.key" -out "$system$home/tls.pem" 2> /dev/null
    write_documents "$system$home/documents"
    chown -R 1000:1000 "$system$home"
    as_reader tar -C $home -xf "$home/$name.tar.gz"
}

# write_documents FOLDER: each says what no other does.
write_documents() {
    echo "The keeper of the lighthouse at Norvik has a cat. The cat of the lighthouse is called Marmalade." > "$1/cat.txt"
    cat > "$1/bridge.html" <<'END'
<!doctype html><title>Bridges</title><h1>The bridge of Altamura</h1>
<p>The iron bridge of Altamura was opened in the year 1894 by the engineer Ottavia Fini.</p>
END
    write_pdf "BT /F1 12 Tf 20 100 Td (The recipe for plum soup needs seven plums and a spoon of honey.) Tj ET" > "$1/soup.pdf"
}

# write_pdf WHAT_IS_DRAWN: one page.
write_pdf() {
    local objects=("<< /Type /Catalog /Pages 2 0 R >>" "<< /Type /Pages /Kids [3 0 R] /Count 1 >>"
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 500 200] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>"
        "<< /Length ${#1} >>
stream
$1
endstream" "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    local text='%PDF-1.4
' places=() i
    for i in "${!objects[@]}"; do
        places+=("${#text}")
        text+="$((i + 1)) 0 obj
${objects[i]}
endobj
"
    done
    printf '%sxref\n0 6\n0000000000 65535 f \n' "$text"
    printf '%010d 00000 n \n' "${places[@]}"
    printf 'trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n' "${#text}"
}

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# What the server answers, by HTTP or HTTPS.
ask() { curl -sf --cacert "$system$home/tls.pem" "$url$1" "${@:2}"; }

# start_server NAME SCHEME OPTION...: with a collection of its own of that name.
start_server() {
    log=$work/$suite-$1.log
    port=$(free_port) url=$2://127.0.0.1:$port
    # Not by as_reader, whose process would be a shell's.
    chroot --userspec=1000:1000 "$system" "${reader[@]}" XDG_DATA_HOME="$home/$1" "$home/$name/bin/retro-server" \
        "$home/$name/share/retro-server/models/retro-docs" "$home/documents" \
        --set server.port="$port" --set retrieval.embedder=$home/embedder "${@:3}" > "$log" 2>&1 &
    server=$!
    for _ in $(seq 3000); do
        ! ask /health -o /dev/null || return 0
        kill -0 "$server" 2> /dev/null || { cat "$log"; fail "the server did not start"; }
        sleep 0.1
    done
    cat "$log"
    fail "the server did not answer within five minutes"
}

stop_server() {
    kill "$server"
    wait "$server" || { cat "$log"; fail "the server ended with $?"; }
    server=
}

# check_source QUESTION DOCUMENT: what the answer read first is of DOCUMENT.
check_source() {
    local reply first
    reply=$(jq -n --arg prompt "$1" '{prompt: $prompt, max_tokens: 8, temperature: 0}' |
        ask /v1/completions -d @-) || { cat "$log"; fail "no answer to: $1"; }
    [ -n "$(jq -r '.choices[0].text' <<< "$reply")" ] || fail "an empty answer to: $1"
    first=$(jq -r '.retrieval[0].neighbors[0].document' <<< "$reply")
    [[ $first == *"$2" ]] || { cat "$log"; fail "\"$1\" read $first, not $2"; }
}

check_programs() {
    local program
    for program in "$system$home/$name"/bin/*; do
        as_reader "$home/$name/bin/${program##*/}" --help > /dev/null || fail "${program##*/} does not run"
    done
    as_reader test -f "$home/$name/share/man/man1/retro-server.1" || fail "there is no manual page"
    as_reader sh -c "cd $home/$name && bin/retro-server --config retro.json --check-config" > "$work/check" 2>&1 ||
        { cat "$work/check"; fail "the example configuration is wrong"; }
}

# Its status is that of the system's trial; what goes wrong ends it.
try_system() {
    set +m
    trap release_system EXIT
    trap 'exit 130' INT TERM
    make_system
    check_programs

    start_server without http
    grep -q 'soup.pdf: .*install the package libpoppler-glib8' "$log" || { cat "$log"; fail "the missing reader is not named"; }
    check_source "Question: What is the cat of the lighthouse called? Answer:" cat.txt
    check_source "Question: Who opened the iron bridge of Altamura? Answer:" bridge.html
    page=$(ask /) || fail "there is no page"
    [[ $page == *"<title>"* ]] || fail "the page has no title"
    stop_server

    as_root_there apt-get install -y -qq --no-install-recommends libpoppler-glib8 > "$work/packages" 2>&1 ||
        { tail "$work/packages"; fail "there is no package libpoppler-glib8"; }
    start_server with https --set server.tls_certificate=$home/tls.pem --set server.tls_key=$home/tls.key
    check_source "Question: What does the recipe for plum soup need? Answer:" soup.pdf
    stop_server
    say "passed, with $(as_reader ldd --version | head -1)"
}

[ "$(id -u)" = 0 ] || { echo "tests/dist/run.sh: needs root, for chroot" >&2; exit 1; }
failed=0
for suite in "${suites[@]}"; do
    system=$work/$suite
    # In a group of its own, which a signal ends at once. A command before || would go on after errors.
    set -m
    (try_system) &
    trial=$!
    set +m
    wait "$trial" || { failed=$((failed + 1)); say failed; }
    trial=
done
echo "$((${#suites[@]} - failed)) passed, $failed failed"
[ "$failed" = 0 ]
