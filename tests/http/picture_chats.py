"""Chats about pictures with a folder of tests/golden that a script of tests/reference made, and what transformers answered."""
import base64
import json
import struct
import zlib

import pytest
from conftest import Server


def png(width, height, colour=(0x40, 0x80, 0xC0)):
    """A file of one colour, of any size."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + bytes(colour) * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def url_of(data):
    return "data:image/png;base64," + base64.b64encode(data).decode()


def part_of(data):
    return {"type": "image_url", "image_url": {"url": url_of(data)}}


def text(words):
    return {"type": "text", "text": words}


def ask(server, messages, **fields):
    return server.client().chat.completions.create(model="seer", messages=messages, temperature=0, max_tokens=12, **fields)


def logprobs_of(reply):
    return [token.logprob for token in reply.choices[0].logprobs.content]


class PictureChats:
    """Of one folder: its pictures, its cases (answers.json), and servers of it."""

    def __init__(self, folder):
        self.folder = folder
        self.cases = json.loads((folder / "answers.json").read_text())

    def picture(self, name):
        return part_of((self.folder / name).read_bytes())

    def messages_of(self, turns):
        def content_of(parts):
            return [self.picture(p) if p.endswith(".png") else text(p) for p in parts]
        return [{"role": "assistant", "content": turn} if i % 2 else {"role": "user", "content": content_of(turn)}
                for i, turn in enumerate(turns)]

    def start(self, work, model=None, options={}, **settings):
        work.mkdir(exist_ok=True)
        config = work / "retro.json"
        config.write_text(json.dumps({"model": {"path": str(model or self.folder), "name": "seer", "dtype": "f32"},
                                      "server": {"port": 0, "max_context": 400, **settings}, **options}))
        running = Server(config, work)
        running.model = model or self.folder
        return running

    def compare(self, server, case):
        """The server's answer to a case is transformers'."""
        reply = ask(server, self.messages_of(case["turns"]), logprobs=True)
        assert reply.choices[0].message.content == case["answer"]
        logprobs = logprobs_of(reply)
        assert logprobs == pytest.approx(case["logprobs"][:len(logprobs)], abs=1e-4) and len(logprobs) >= len(case["answer"]) > 0
        assert reply.usage.prompt_tokens == case["prompt_tokens"]
        return reply
