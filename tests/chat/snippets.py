"""Random pieces of Jinja: expressions and statements over a few variables."""

VARIABLES = {
    "s": "Héllo  wOrld\n x", "e": "", "n": 5, "z": 0, "f": 2.5, "g": -1e20, "t": True, "no": None, "l": [3, 1, 2],
    "ls": ["b", "A", "c", "a"], "ld": [{"a": 1, "b": "x"}, {"a": 2, "b": "Y"}, {"a": 1}],
    "d": {"k": "v", "B": 2, "a": None}, "nest": {"x": {"y": [1, {"z": "q"}]}},
    "mix": [1, "a", None, True, 2.0, [1], {"q": 1}], "esc": "<a href='x'>&\"\\\n\té\u2028", "ws": "\u00a0\u3000 x \x1c\t",
}
TEXTS = ["s", "e", "esc", "ws", "'abc'", "'a,b,,c'", "\"it's\"", "'ß ŉ ΑΣ ǆ'", "d.k", "ls[0]"]
NUMBERS = ["n", "z", "3", "-2", "l|length", "7", "t", "1"]
LISTS = ["l", "ls", "mix", "[]", "[1,2,3,4,5]", "l+l", "range(4)|list", "'a b c'.split()", "(1,2)", "ls|sort",
         "ld|map(attribute='a')|list", "s.split()", "s.splitlines()"]
DICTS = ["d", "nest", "{}", "{'a':1,2:'b'}", "dict(a=1)", "ld[0]"]
ATOMS = [*TEXTS, *NUMBERS, *LISTS, *DICTS, "f", "g", "no", "undef", "nest.x.y[1].z", "nest.x.q"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
TESTS = ["defined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float", "boolean", "true",
         "false", "odd", "even", "lower", "upper", "callable", "undefined"]
FILTERS = """trim upper lower title capitalize length list first last tojson string int float abs round sort unique|list
reverse|list join sum min max items|list dictsort default(1) d(2,true) join("-") tojson(indent=2) indent replace("a","b")
safe escape batch(2)|list count map("string")|list select|list reject("none")|list select("string")|list
map("upper")|list indent(2,true) tojson(separators=(",",":")) string|length map(attribute="a")|list selectattr("a")|list
selectattr("a","equalto",1)|list rejectattr("b","defined")|list groupby("a") round(1) int(default=7) e join(",")|upper
sort(reverse=true) tojson(sort_keys=true) select("in",[1,"a"])|list map("default",0)|list round(1,"floor")""".split()
LIST_FILTERS = """map("tojson")|join(",") select("defined")|list first last sort|join join(",") length sum unique|join max
min reverse|first batch(2,0)|list list|tojson tojson map("int")|sum""".split()
TEXT_FILTERS = """trim upper title length tojson replace("l","") capitalize list|length indent escape reverse int
float""".split()
METHODS = """strip() lstrip() rstrip() split() split(",") split(",",1) rsplit("l",1) splitlines() upper() lower() title()
capitalize() startswith("a") endswith("d") replace("l","L") replace("","-") find("l") rfind("l") count("l") join(ls)
isdigit() isalpha() isupper() strip("abc") lstrip("H") rstrip("x") removeprefix("a") removesuffix("c") partition(",")
rpartition("l") zfill(8) center(9,"*") ljust(7)+"|" rjust(7) format(1) swapcase() isspace() isalnum() islower()
splitlines(true) index("a") rsplit() rsplit(none,1) split(none,1) startswith(("a","H")) find("a",1) count("")
endswith("x",1,3)""".split()
INDICES = ["0", "-1", "5", '"a"', "n"]
SLICES = ["1:", "::-1", ":2", "-2:", "1:3", "::2", "-9:9:3", "3:0:-1", ":-1"]
DICT_PARTS = """items()|list keys()|list values()|list get("k") get("zz",5) items() keys() k a zz copy()""".split()
PERCENTS = ['"%s|%s"', '"%d"', '"%5.2f"', '"%r"', '"%-6s|"', '"%x"', '"%%"', '"%05d"']
FORMATS = ['"{}-{}"', '"{0}{1}{0}"', '"{:>5}|{:<4}"', '"{!r}:{}"']


def make_expression(rng, depth):
    def inner():
        return make_expression(rng, depth - 1)

    def pick(choices):
        return rng.choice(choices)

    makers = [
        lambda: f"({inner()} {pick(OPERATORS)} {inner()})",
        lambda: f"({inner()} ~ {inner()})",
        lambda: f"({inner()} if {inner()} else {inner()})",
        lambda: f"(not {inner()})",
        lambda: f"({inner()} is {pick(['', 'not '])}{pick(TESTS)})",
        lambda: f"({inner()})|{pick(FILTERS)}",
        lambda: f"({pick(TEXTS)}).{pick(METHODS)}",
        lambda: f"({inner()})[{pick(INDICES)}]",
        lambda: f"({pick([*LISTS, *TEXTS])})[{pick(SLICES)}]",
        lambda: f"({pick(DICTS)}).{pick(DICT_PARTS)}",
        lambda: f"[{inner()}, {inner()}]",
        lambda: f"{{'p': {inner()}, 'q': {inner()}}}",
        lambda: f"({pick(PERCENTS)} % {inner()})",
        lambda: f"({inner()}, {inner()})",
        lambda: f"(-{pick([*NUMBERS, 'f', 's'])})",
        lambda: f"({inner()} < {inner()} < {inner()})",
        lambda: f"({pick(FORMATS)}.format({inner()}, {inner()}))",
        lambda: f"({pick(LISTS)})|{pick(LIST_FILTERS)}",
        lambda: f"range({pick(['3', '1,4', '5,0,-2', '0'])}){pick(['', '|list', '[1]', '|length', '|sum'])}",
        lambda: f"{pick(TEXTS)}|{pick(TEXT_FILTERS)}",
        lambda: pick(ATOMS),
    ]
    return pick(makers)() if depth > 0 else pick(ATOMS)


def make_statement(rng, depth):
    pick = rng.choice

    def tag(words):
        return "{%" + pick(["", "-", "", "+"]) + f" {words} " + pick(["", "-", "", "+"]) + "%}"

    def text():
        return pick(["", " ", "\n", "  \n  ", "x", "\n\n", "a\n b", " \t", "é\u00a0\n"])

    def body():
        return text() + (make_statement(rng, depth - 1) if depth > 0 else "{{ n }}") + text()

    def value(levels):
        return make_expression(rng, levels)

    in_loop = ["{{ loop.last }}", "{{ loop.previtem }}", "{{ loop.nextitem is defined }}", "{{ loop.cycle(1,2) }}",
               "{{ loop.revindex0 }}", "{{ loop.changed(i) }}", "{{ loop.length }}", "{{ loop.foo }}"]
    leave = ["", "{% if loop.index == 2 %}{% break %}{% endif %}", "{% if loop.first %}{% continue %}{% endif %}"]
    makers = [
        lambda: (tag("if " + value(1)) + body() + tag("elif " + value(1)) + body() + tag("else") + body()
                 + tag("endif")),
        lambda: (tag("for i in " + pick([*LISTS, *DICTS, "undef", "s", "no", "n"]) + pick(["", " if i"]))
                 + "{{ loop.index }}{{ i }}" + pick(in_loop) + pick(leave) + body() + tag("else") + "EMPTY"
                 + tag("endfor")),
        lambda: tag("set v = " + value(2)) + text() + "{{" + pick(["", "-"]) + " v }}",
        lambda: (tag("set ns = namespace(a=1)") + tag("for i in l") + tag("set ns.a = ns.a + i") + tag("set n = i")
                 + "{{ n }}" + tag("endfor") + "{{ ns.a }}{{ n }}"),
        lambda: (tag("macro m(x, y=2)") + text() + "[{{ x }}{{ y }}{{ " + value(1) + " }}]" + tag("endmacro") + "{{ m("
                 + pick(["1", "1,3", "y=5", "x=s", "", "1,2,3", "1,zz=4"]) + ") }}"),
        lambda: (tag("macro m(x)") + "<{{ x }}{{ caller() }}>" + tag("endmacro") + tag("call m(3)") + body()
                 + tag("endcall")),
        lambda: "{#" + pick(["", "-"]) + " c " + pick(["", "-"]) + "#}" + text(),
        lambda: tag("set b" + pick(["", "|upper", "|trim"])) + body() + tag("endset") + "{{ b }}",
        lambda: tag("filter " + pick(["upper", "trim", 'replace("a","b")'])) + body() + tag("endfilter"),
        lambda: tag("with q=" + value(1)) + "{{ q }}" + tag("endwith"),
        lambda: "{% raw %} {{ x }} " + tag("endraw"),
        lambda: tag("generation") + body() + tag("endgeneration"),
        lambda: (tag("for a, b in " + pick(["d.items()", "d|dictsort", "[[1,2],[3,4]]", "ld", "d|items"]))
                 + "{{ a }}={{ b }};" + tag("endfor")),
        lambda: "{{" + pick(["", "-"]) + " " + value(3) + " " + pick(["", "-"]) + "}}",
    ]
    return pick(makers)()


def make_snippet(rng):
    if rng.random() < 0.4:
        return "{{ " + make_expression(rng, 3) + " }}"
    ends = ["", "x", "\n", " ", "  \n", "\n\n"]
    parts = [rng.choice(ends) + make_statement(rng, 2) + rng.choice(ends) for _ in range(rng.randrange(1, 3))]
    return "".join(parts)
