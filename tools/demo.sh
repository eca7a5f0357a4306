#!/usr/bin/env bash
# The demo: documents in, an answer written with them and its sources out, beside one written without. Called by
# `make demo`, which installs and builds first.
#
#   [MODEL=FOLDER] tools/demo.sh [PROMPT]
#
#   build/demo/corpus       manuals of Debian packages (tools/fetch_corpus.sh)
#   build/demo/collection   their chunks, vectors and index (retro-index)
#   build/demo/retro.json   the configuration that they were indexed with
#   build/demo/model.json   the server's configuration with MODEL, a downloaded folder or a GGUF file; else retro.json
#   build/demo/server.log, server.pid
#
# Parts that are there are used again, so a second run takes seconds. The server stays up when the script ends.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\033[1mdemo:\033[0m %s\n' "$*"; }
fail() { echo "tools/demo.sh: $*" >&2; exit 1; }

build=$(realpath -m "${BUILD:-build}")
deps=${DEPS:-$HOME/.cache/retro-server}
shipped=$PWD/models/retro-docs
model=$shipped
[ -z "${MODEL:-}" ] || model=$(cd "${OLDPWD:-.}" && realpath "$MODEL")
[ -e "$model" ] || fail "MODEL is $MODEL, and there is no such folder or file"
demo=$build/demo
config=$demo/retro.json # of the collection
served=$config          # of the server
[ "$model" = "$shipped" ] || served=$demo/model.json
pid_file=$demo/server.pid

# write_config FILE MODEL PORT. Paths are absolute, so the file works from anywhere on this machine. bf16 embeds a
# quarter faster. Words beside vectors find the part of a manual that names an option.
write_config() {
    jq -n --arg model "$2" --arg collection "$demo/collection" --arg embedder "$deps/minilm" --argjson port "$3" '{
            model: {path: $model},
            retrieval: {collection: $collection, embedder: $embedder, embedder_dtype: "bf16", hybrid: true, keep_files: "copy"},
            server: {host: "127.0.0.1", port: $port}}' > "$1.new"
    mv "$1.new" "$1"
}

# The shipped model has learned from chunks of a grid. A title and headings in their vectors find more of the answers to
# questions (docs/results/retrieval.md).
cut=(--chunks grid --context 32)

# The inputs of the collection; when any of them changes, the collection is made again.
collection_inputs() {
    { echo "${cut[@]}" && cat "$demo"/corpus/.complete/* "$shipped/tokenizer.json" "$deps/.minilm.done"; } | cksum
}

build_collection() {
    local inputs status=0
    inputs=$(collection_inputs)
    if [ -f "$demo/collection.inputs" ] && [ "$(cat "$demo/collection.inputs")" = "$inputs" ] &&
        "$build/retro-index" verify "$demo/collection" --config "$config" > "$demo/verify.log" 2>&1; then
        return
    fi
    stop_server
    say "indexing $(find "$demo/corpus/text" -type f | wc -l) documents (about a minute)"
    rm -f "$demo/collection.inputs"
    "$build/retro-index" build "${cut[@]}" --out "$demo/collection" --config "$config" "$demo/corpus/text"/* ||
        status=$?
    # 2: complete, but some files were skipped, which it has named.
    [ "$status" = 0 ] || [ "$status" = 2 ] || exit "$status"
    echo "$inputs" > "$demo/collection.inputs"
}

server_pid() { if [ -f "$pid_file" ]; then cat "$pid_file"; fi; }

# A process of this demo, of the program as it is built now, with the same model; a rebuilt program's old process has a
# deleted file.
server_is_ours() {
    local pid
    pid=$(server_pid)
    [ -n "$pid" ] && [ "$(readlink "/proc/$pid/exe" 2>/dev/null)" = "$build/retro-server" ] &&
        tr '\0' '\n' < "/proc/$pid/cmdline" | grep -qxF "$served" &&
        [ "$(jq -r .model.path "$served")" = "$model" ]
}

stop_server() {
    local pid
    pid=$(server_pid)
    [ -n "$pid" ] || return 0
    if [[ $(readlink "/proc/$pid/exe" 2>/dev/null) == "$build/retro-server"* ]]; then
        say "stopping the server of an earlier run"
        kill "$pid" 2>/dev/null || true
        for _ in $(seq 100); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
    fi
    rm -f "$pid_file"
}

port() { jq .server.port "$served"; }
healthy() { curl -sf -o /dev/null --max-time 2 "http://127.0.0.1:$1/health"; }
taken() { (exec 3<> "/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

free_port() {
    local candidate
    for candidate in $(seq 8080 8179); do
        taken "$candidate" || { echo "$candidate"; return; }
    done
    fail "every port from 8080 to 8179 is taken"
}

start_server() {
    local pid chosen
    if server_is_ours && healthy "$(port)"; then
        say "using the server that is running"
        return
    fi
    stop_server
    chosen=$(free_port)
    write_config "$served" "$model" "$chosen"
    # A session of its own: Ctrl-C here does not reach it, and it outlives the terminal.
    setsid "$build/retro-server" --config "$served" > "$demo/server.log" 2>&1 < /dev/null &
    pid=$!
    echo "$pid" > "$pid_file"
    trap stop_server EXIT
    for _ in $(seq 600); do
        healthy "$(port)" && break
        kill -0 "$pid" 2>/dev/null || { cat "$demo/server.log" >&2; fail "the server did not start"; }
        sleep 0.1
    done
    healthy "$(port)" || { cat "$demo/server.log" >&2; fail "the server did not answer within a minute"; }
    trap - EXIT
}

for program in curl jq python3; do
    command -v "$program" > /dev/null || fail "$program is missing; run make deps"
done
for file in "$build/retro-server" "$build/retro-index" "$deps/minilm/model.safetensors"; do
    [ -e "$file" ] || fail "$file is missing; run make demo, which builds and installs first"
done
trap 'exit 130' INT
trap 'exit 143' TERM

mkdir -p "$demo"
tools/fetch_corpus.sh "$demo/corpus"
[ -f "$config" ] || write_config "$config" "$shipped" 8080
build_collection
start_server

# The shipped model has learned from questions as plain text, which its chats are, and from no instructions. So has any
# other that brings no chat template.
url=http://127.0.0.1:$(port)
show="tools/show_answer.py --chat"
if curl -sf "$url/v1/models" | jq -e '.data[0].meta.chat_template == "plain"' > /dev/null; then show+=" --no-system"; fi
prompt="What does lseek() return upon successful completion?"
[ "$model" = "$shipped" ] || prompt="How does open() create a file only if it does not exist yet?"
prompt=${1:-$prompt}
say "asking $url, with retrieval and without: the same text, seed and options"
echo
# shellcheck disable=SC2086 # words of a command
python3 $show --server "$url" "$prompt"
echo
[ "$model" != "$shipped" ] || say "the model is a small proof: it quotes the manual it reads, often the wrong line; see models/retro-docs/README.md"
say "the server keeps running; its log is $demo/server.log"
embedder=
[ "$deps" = "$HOME/.cache/retro-server" ] || embedder=" --set retrieval.embedder=$deps/minilm"
next_port=$(free_port)
cat <<END

Your own documents, a folder of text, Markdown, HTML, PDF, office documents or mail in place of FOLDER:

  ${build#"$PWD"/}/retro-server ${model#"$PWD"/} FOLDER --set server.port=$next_port$embedder

It says where it keeps their collection, and follows them. When it listens:

  $show --server http://127.0.0.1:$next_port "A question about them?"

The demo's server as programs ask it, streamed:

  curl -N $url/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"messages": [{"role": "user", "content": "What does pipe() return?"}], "max_tokens": 64, "temperature": 0, "stream": true}'

OpenAI's client, and whatever uses it: base_url $url/v1, any api_key; the model is the only one in /v1/models

To stop it:

  kill $(server_pid)

Ask it in a browser, with the sources beside the text:

  $url/
END
