#!/usr/bin/env python3
"""Writes tests/chat/expected.json and tests/chat/snippets.json: what Hugging Face transformers makes of the templates and
conversations in tests/chat, and of random pieces of Jinja.

    make_chat_fixtures.py        needs transformers 5.23 and tokenizers
    make_chat_fixtures.py --snippets PROGRAM SEED N    compares N other random pieces with retro-eval, commits nothing
"""
import copy
import datetime
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

os.environ["TZ"] = "UTC"
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer
from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).resolve().parents[1] / "chat"
sys.path.insert(0, str(HERE))
from conversations import CONVERSATIONS
from snippets import VARIABLES, make_snippet

EPOCH = 1735689600
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"]
PLAIN = ["<think>", "</think>", "<tool_call>", "</tool_call>", "\n\n\n"]


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(EPOCH, tz)


chat_template_utils.datetime = Clock


def write_tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("h", "e"), ("Ġ", "x"), ("Ċ", "Ċ")]
    vocab = {c: i for i, c in enumerate(alphabet + [a + b for a, b in merges])}
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens(SPECIAL)
    t.add_tokens(PLAIN)
    t.save(str(HERE / "tokenizer.json"))
    (HERE / "tokenizer_config.json").write_text(json.dumps(
        {"bos_token": "<s>", "eos_token": "</s>", "tokenizer_class": "PreTrainedTokenizerFast"}) + "\n")


def expect(tokenizer, source, conversation):
    fields = {"tools": conversation.get("tools"), "documents": conversation.get("documents"), "chat_template": source,
              "continue_final_message": conversation.get("continue_final_message", False),
              "add_generation_prompt": conversation.get("add_generation_prompt", not conversation.get("continue_final_message")),
              **conversation.get("chat_template_kwargs", {})}
    try:
        text = tokenizer.apply_chat_template(conversation["messages"], tokenize=False, **fields)
    except Exception as error:
        return {"error": str(error) if type(error).__name__ == "TemplateError" else None}
    # Templates that print a value's repr or cut a text show the marks by which transformers itself follows texts; then a
    # message that is continued may not be found.
    try:
        ids = tokenizer.apply_chat_template(conversation["messages"], return_dict=False, sanitize_control_tokens=True, **fields)
    except ValueError:
        return {"text": text, "ids": None}
    return {"text": text, "ids": ids if tokenizer.decode(ids) == text else None}


def render(source):
    try:
        template = chat_template_utils._cached_compile_jinja_template(source)
        return template.render(messages=[{"role": "user", "content": "x"}], tools=None, documents=None,
                               add_generation_prompt=True, **copy.deepcopy(VARIABLES))
    except Exception:
        return None


def snippets(seed, n):
    rng = random.Random(seed)
    for _ in range(n):
        source = make_snippet(rng)
        yield source, render(source)


def compare(program, seed, n):
    different = unsupported = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "request.json").write_text(json.dumps(
            {"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": VARIABLES}))
        for source, want in snippets(seed, n):
            (folder / "chat_template.jinja").write_text(source)
            done = subprocess.run([program, "chat", folder, folder / "request.json"], capture_output=True)
            got = done.stdout.decode() if done.returncode == 0 else None
            if got is None and done.stderr.endswith(b"is not supported\n"):
                unsupported += 1
            elif got != want:
                different += 1
                print(f"{source!r}\n  expected {want!r}\n  got      {got!r} {done.stderr.decode()}")
    print(f"{n} snippets, {unsupported} not supported, {different} different")
    return different > 0


def main():
    write_tokenizer()
    tokenizer = AutoTokenizer.from_pretrained(HERE)
    # docs/chat-templates.md: marks are control tokens whether or not the tokenizer calls them special.
    tokenizer.add_special_tokens({"extra_special_tokens": [mark for mark in PLAIN if mark.startswith("<")]})
    expected = {path.name: [expect(tokenizer, path.read_text(), c) for c in CONVERSATIONS]
                for path in sorted((HERE / "templates").glob("*.jinja"))}
    lines = (f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(e, ensure_ascii=False) for e in all_of) + "]"
             for name, all_of in expected.items())
    (HERE / "expected.json").write_text("{\n" + ",\n".join(lines) + "}\n")
    kept = [pair for pair in snippets(1, 400) if len(pair[0]) < 400]
    (HERE / "snippets.json").write_text("[\n" + ",\n".join(json.dumps(p, ensure_ascii=False) for p in kept) + "]\n")


if __name__ == "__main__":
    sys.exit(compare(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])) if len(sys.argv) == 5 else main())
