#!/usr/bin/env python3
"""Asks a running server to go on with a text, or with --chat a question, once with retrieval and once without, and shows
both answers beside each other and the passages that the first was written from.

    tools/show_answer.py [--chat] [--server http://127.0.0.1:8080] [--wait 20] [--max-tokens 96] [--seed 1] TEXT

An answer that max_tokens cuts is shown up to its last whole sentence, or word. A server that is still starting is waited
for. Exits 1 with the server's message when it refuses, or when nothing answers. Standard library only.
"""
import argparse
import itertools
import json
import re
import shutil
import sys
import textwrap
import time
import urllib.error
import urllib.request

BOLD, DIM, RESET = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "", "")
SAMPLING = {"temperature": 0.8, "top_p": 0.9}
GAP = "  |  "
SYSTEM = ("Answer from the numbered passages. Write the number of each passage that you use, as in [1]. "
          "Say so when they do not answer.")


def printable(text):
    """Control characters of a document or of a model would steer the terminal."""
    return "".join(c if c in "\n" or c.isprintable() else " " for c in text)


def wait_for(server, seconds):
    """Until something answers; what it says is not looked at."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            urllib.request.urlopen(server + "/health", timeout=5).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError as e:
            if time.monotonic() > deadline:
                raise ValueError(f"{server} does not answer: {getattr(e, 'reason', e)}") from None
        time.sleep(0.1)


def ask(a, retrieval):
    """The text, why it ended, and the passages of each chunk."""
    body = {"max_tokens": a.max_tokens, "seed": a.seed, "retrieval": retrieval, **SAMPLING}
    path = "/v1/completions"
    if a.chat:
        path = "/v1/chat/completions"
        messages = [{"role": "system", "content": SYSTEM}] if retrieval["enabled"] else []
        body["messages"] = [*messages, {"role": "user", "content": a.text}]
    else:
        body["prompt"] = a.text
    request = urllib.request.Request(a.server + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as reply:
            content = reply.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as refused:
        raise ValueError(error_text(refused.read().decode("utf-8", "replace"))) from None
    except OSError as e:
        raise ValueError(f"{a.server} does not answer: {getattr(e, 'reason', e)}") from None
    try:
        answer = json.loads(content)
        choice = answer["choices"][0]
        text = choice["message"]["content"] if a.chat else choice["text"]
        return printable(text or ""), choice["finish_reason"], answer.get("retrieval") or []
    except (ValueError, KeyError, TypeError, IndexError):
        raise ValueError(error_text(content)) from None


def error_text(body):
    try:
        return json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return f"unexpected reply: {body[:500]}"


def clean_end(text, reason):
    """Cut by max_tokens, a text ends behind its last sentence if that is in its second half, else behind its last word."""
    if reason != "length":
        return text.rstrip()
    sentences = [m.end() for m in re.finditer(r"[.!?][\"')\]]*(?=\s)", text)]
    if sentences and sentences[-1] >= len(text) / 2:
        return text[: sentences[-1]]
    words = [m.start() for m in re.finditer(r"\s+\S*$", text)]
    return (text[: words[0]] if words and words[0] else text).rstrip() + " ..."


def wrapped(text, width):
    """Lines of at most `width`; the text's own lines and its indents stay."""
    lines = []
    for line in text.strip("\n").split("\n"):
        indent = re.match(r" {0,8}", line)[0]
        lines += textwrap.wrap(line, width, subsequent_indent=indent, replace_whitespace=False, drop_whitespace=True) or [""]
    return lines


def show_columns(left, right, width):
    column = (width - len(GAP)) // 2
    rows = itertools.zip_longest(wrapped(left, column), wrapped(right, column), fillvalue="")
    print(f"{BOLD}{'With retrieval':<{column}}{RESET}{GAP}{BOLD}Without{RESET}")
    for one, other in rows:
        print(f"{one:<{column}}{GAP}{other}".rstrip())


def show_sources(chunks, width):
    in_prompt = any("number" in neighbor for chunk in chunks for neighbor in chunk["neighbors"])
    how = "The model read them in its prompt:" if in_prompt else "From each token on, it was written with these passages in view:"
    print(f"\n{BOLD}Sources{RESET} of the left text. {how}")
    for chunk in chunks:
        print("" if in_prompt else f"\n  from token {chunk['position']}")
        if not chunk["neighbors"]:
            print("    nothing near enough")
        for neighbor in chunk["neighbors"]:
            place = neighbor.get("document") or "given with the request"
            if neighbor.get("title"):
                place += f" ({neighbor['title']})"
            if neighbor.get("start") is not None:
                place += f", bytes {neighbor['start']}-{neighbor['end']}"
            if neighbor.get("similarity") is not None:
                place = f"{neighbor['similarity']:.3f}  {place}"
            if "number" in neighbor:
                place = f"[{neighbor['number']}] {place}"
            first = next((" ".join(s.split()) for s in neighbor["text"].splitlines() if s.strip()), "")
            print(f"    {printable(place)}")
            print(f"           {DIM}{printable(first)[: width - 12]}{RESET}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--server", default="http://127.0.0.1:8080")
    parser.add_argument("--wait", type=float, default=20, help="seconds for a server to start")
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--chat", action="store_true", help="TEXT is a question to a chat model")
    parser.add_argument("text")
    a = parser.parse_args()
    a.server = a.server.rstrip("/")
    width = min(max(shutil.get_terminal_size((100, 24)).columns, 60), 140)
    try:
        wait_for(a.server, a.wait)
        text, reason, chunks = ask(a, {"enabled": True})
        plain, plain_reason, _ = ask(a, {"enabled": False})
    except ValueError as e:
        sys.exit(str(e))
    except KeyboardInterrupt:
        sys.exit(130)
    print(f"{BOLD}{a.text}{RESET}{'' if a.chat else ' ...'}\n")
    show_columns(clean_end(text, reason), clean_end(plain, plain_reason), width)
    show_sources(chunks, width)


if __name__ == "__main__":
    main()
