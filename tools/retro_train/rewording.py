"""Questions in other words. Rules derive a question from the very line that answers it; people ask before they have read the line,
so the model must find it by its meaning.
"""

import hashlib
import random
import re

# What stands on the left is often said as on the right.
OTHER_WORDS = {
    "abort": ("give up", "stop"), "absolute": ("full",), "access": ("use", "reach"), "add": ("append", "put in"), "additional": ("more", "further"),
    "after": ("once",), "all": ("every",), "allow": ("let", "permit"), "allowed": ("permitted", "possible"), "already": ("before",),
    "append": ("add",), "argument": ("parameter",), "avoid": ("prevent",), "before": ("ahead of",), "begin": ("start",), "build": ("make",),
    "buffer": ("memory",), "change": ("alter", "modify", "set"), "check": ("test", "verify", "look at"), "choose": ("select", "pick"),
    "clear": ("empty", "reset"), "close": ("shut",), "closed": ("shut",), "command": ("program",), "compress": ("shrink", "pack"),
    "contents": ("data", "text"), "convert": ("turn", "translate"), "copy": ("duplicate",), "create": ("make",), "created": ("made",),
    "current": ("present",), "default": ("usual", "standard"), "define": ("set", "name"), "delete": ("remove", "erase"), "deleted": ("removed",),
    "describe": ("explain",), "directory": ("folder",), "directories": ("folders",), "disable": ("turn off", "switch off", "stop"),
    "display": ("show", "print"), "displays": ("shows", "prints"), "does not exist": ("is not there", "is missing"), "each": ("every",),
    "edit": ("change",), "empty": ("blank",), "enable": ("turn on", "switch on", "activate"), "encode": ("turn",), "end": ("finish",),
    "error": ("problem",), "exceeded": ("passed",), "exclude": ("leave out", "skip"), "execute": ("run", "start"), "existing": ("old",),
    "exit": ("quit", "end", "stop"), "extract": ("take out", "get"), "fails": ("goes wrong",), "filename": ("name of a file",),
    "find": ("search for", "look for"), "follow": ("go along",), "force": ("insist to",), "format": ("form", "layout"),
    "generate": ("make", "produce"), "give": ("tell",), "given": ("named", "chosen"), "hide": ("not show",), "ignore": ("skip", "leave out", "disregard"),
    "ignored": ("skipped",), "include": ("add", "have"), "indicate": ("show", "say"), "initial": ("first",), "insert": ("put in",), "install": ("set up",),
    "instead of": ("rather than", "in place of"), "insufficient": ("not enough",), "interrupted": ("stopped",), "invalid": ("wrong", "not valid"),
    "invoke": ("run", "call"), "keep": ("preserve", "leave"), "large": ("big", "long"), "length": ("size",), "limit": ("bound", "restrict"),
    "list": ("show", "print"), "lists": ("shows", "prints"), "look": ("search",), "make": ("create",), "match": ("fit",), "maximum": ("largest", "greatest"),
    "merge": ("join", "combine"), "minimum": ("smallest", "least"), "modify": ("change",), "move": ("shift", "bring"), "name": ("title",),
    "no longer": ("not any more",), "number of": ("count of", "amount of"), "omit": ("leave out", "skip"), "only": ("just", "nothing but"),
    "open": ("opened",), "option": ("flag", "switch"), "output": ("print", "write"), "overwrite": ("replace",), "perform": ("do",), "permitted": ("allowed",),
    "preserve": ("keep",), "prevent": ("stop", "keep from"), "previous": ("last", "earlier"), "print": ("show", "display", "output", "write", "list"),
    "prints": ("shows", "displays", "writes", "lists"), "process": ("program",), "produce": ("make", "write"), "prompt": ("ask",),
    "put": ("place",), "quit": ("exit", "stop"), "read": ("take in",), "recursively": ("with everything below",), "redirect": ("send",),
    "remove": ("delete", "drop"), "removes": ("deletes", "drops"), "removed": ("deleted", "gone"), "rename": ("change the name of",), "repeat": ("do again",),
    "replace": ("exchange", "change"), "report": ("show", "tell"), "reset": ("set back",), "restore": ("bring back",), "restrict": ("limit",),
    "result": ("outcome",), "returned": ("given back",), "reverse": ("turn around",), "save": ("store", "keep"), "search": ("look",),
    "select": ("choose", "pick"), "send": ("pass",), "separate": ("split", "divide"), "set": ("change", "choose"), "show": ("display", "print", "list"),
    "shows": ("displays", "prints", "lists"), "size": ("length",), "skip": ("leave out", "ignore"), "sort": ("order",), "specified": ("given", "named"),
    "specifies": ("sets", "says"), "specify": ("give", "set", "choose"), "start": ("begin",), "stop": ("end", "quit"), "store": ("keep", "save"),
    "strip": ("remove",), "successful": ("well",), "suppress": ("hide", "silence", "turn off"), "switch": ("change",), "target": ("goal",),
    "terminate": ("end", "stop"), "terminated": ("ended",), "too large": ("too big",), "too long": ("longer than allowed",), "treat": ("take", "handle"),
    "truncate": ("cut",), "turn off": ("disable",), "turn on": ("enable",), "unable to": ("not able to",), "update": ("renew", "change"),
    "use": ("take", "work with"), "used": ("taken",), "user": ("person",), "value": ("number",), "verify": ("check", "test"), "wait": ("pause",),
    "warn": ("say",), "whole": ("complete", "entire"), "without": ("with no",), "write": ("put", "output"), "wrong": ("bad",),
}
SMALL_WORDS = frozenset("a an the its their this these that of such as also any other more".split())
KNOWN = re.compile(r"\b(" + "|".join(sorted(map(re.escape, OTHER_WORDS), key=len, reverse=True)) + r")\b")
CHANGED, DROPPED, CUT = 0.5, 0.3, 0.3  # shares: of known words, of small ones, of long texts that end early
SHORTEST = 5  # words that are left of a text that ends early


def reword(text, rng):
    """The text with other words where some are known, without some small ones, and sometimes without its end."""
    words = text.split()
    if len(words) > SHORTEST and rng.random() < CUT:
        words = words[: rng.randint(SHORTEST, len(words))]
    kept = [word for word in words if word not in SMALL_WORDS or rng.random() >= DROPPED]
    change = lambda found: rng.choice(OTHER_WORDS[found[0]]) if rng.random() < CHANGED else found[0]
    return KNOWN.sub(change, " ".join(kept)).rstrip(",;: ")


def seeded(text, copy):
    """A generator that is the same for the same text and copy."""
    return random.Random(hashlib.sha256(f"{copy} {text}".encode()).digest())
