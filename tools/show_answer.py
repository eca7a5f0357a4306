#!/usr/bin/env python3
"""Shows a streamed completion as a person reads it: the text as it arrives, and under it the sources it was read from.

    curl -N .../v1/completions -d '{..., "stream": true}' | tools/show_answer.py [PROMPT]

Reads server-sent events on standard input. PROMPT is printed before the text. Exits 1 when the stream holds an error or
ends before its last event. Standard library only.
"""
import json
import shutil
import sys

BOLD, DIM, RESET = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "", "")


def events(lines):
    """The JSON of each event; raises when the reply is not a stream (an error has a plain JSON body)."""
    finished = False
    for line in lines:
        line = line.rstrip("\r\n")
        if line == "data: [DONE]":
            finished = True
        elif line.startswith("data:"):
            yield json.loads(line[5:])
        elif line and not line.startswith(":"):
            raise ValueError(error_text(line + "".join(lines)))
    if not finished:
        raise ValueError("the stream ended early; see the server's log")


def error_text(body):
    try:
        return json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return f"unexpected reply: {body[:500]}"


def show_sources(chunks):
    width = max(shutil.get_terminal_size((100, 24)).columns, 60)
    print(f"\n\n{BOLD}Sources{RESET}, by chunk of the sequence; the text after a chunk's position was written with them in view")
    for chunk in chunks:
        print(f"\n  chunk {chunk['chunk']}, read from token {chunk['position']}")
        if not chunk["neighbors"]:
            print("    nothing near enough")
        for neighbor in chunk["neighbors"]:
            place = neighbor.get("document") or "given with the request"
            if neighbor.get("title"):
                place += f" ({neighbor['title']})"
            if neighbor.get("start") is not None:
                place += f", bytes {neighbor['start']}-{neighbor['end']}"
            if neighbor.get("distance") is not None:
                place = f"{neighbor['distance']:.3f}  {place}"
            first = next((" ".join(s.split()) for s in neighbor["text"].splitlines() if s.strip()), "")
            print(f"    {place}")
            print(f"           {DIM}{first[: width - 12]}{RESET}")


def main():
    chunks = []
    try:
        if len(sys.argv) > 1:
            print(f"{BOLD}{sys.argv[1]}{RESET}", end="", flush=True)
        for event in events(sys.stdin):
            if "error" in event:
                raise ValueError(event["error"]["message"])
            chunks += event.get("retrieval") or []
            for choice in event.get("choices", []):
                print(choice.get("text", ""), end="", flush=True)
    except ValueError as e:
        sys.exit(f"\n{e}")
    except KeyboardInterrupt:
        sys.exit(130)
    show_sources(chunks)


if __name__ == "__main__":
    main()
