"""Conversations with every trait that chat templates meet."""

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": " The wéather <now> & \"quoted\" ",
        "parameters": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "City's name"}, "unit": {"type": "string", "enum": ["c", "f"]},
            "days": {"type": "integer", "default": 3}, "tags": {"type": "array", "items": {"type": "string"}},
            "maybe": {"type": ["string", "null"]}, "any": {"anyOf": [{"type": "string"}]}}}}},
    {"type": "function", "function": {"name": "noop", "parameters": {"type": "object", "properties": {}}}}]
DOCUMENTS = [{"title": "Doc ß", "text": "Text\nline two", "id": 1}, {"title": "B", "text": "é 中文", "score": 0.5}]


def said(role):
    return lambda content, **more: {"role": role, "content": content, **more}


user, assistant, system, tool = map(said, ("user", "assistant", "system", "tool"))


def call(arguments, name="get_weather"):
    return {"type": "function", "id": "call_1", "function": {"name": name, "arguments": arguments}}


def part(text):
    return {"type": "text", "text": text}


CONVERSATIONS = [
    {"messages": [user("Hi")]},
    {"messages": [user("Hi")], "add_generation_prompt": False},
    {"messages": [system("You are X."), user("Hi"), assistant("Hello"), user("How?")]},
    {"messages": [system("  sys \n"), user("\u00a0\u3000 spaced \u2003\n"), assistant("\u2028 a \x85"), user("\x1c x \x1f")]},
    {"messages": [user(""), assistant(""), user("")]},
    {"messages": [user("a"), assistant(None), user("b")]},
    {"messages": [user("one"), user("two")]},
    {"messages": [user("one"), system("late"), user("two")]},
    {"messages": [{"role": "developer", "content": "dev"}, user("two")]},
    {"messages": [user([part("one"), part(" two")]), assistant([part("q")]), user("r")]},
    {"messages": [user([{"type": "image"}, part("what is it")])]},
    {"messages": [user([{"type": "audio"}])]},
    {"messages": [user("q", name="Bob"), assistant("r", name="bot"), user("s")]},
    {"messages": [user("q"), assistant("<think>\nhmm\n</think>\n\nanswer"), user("next"), assistant("<think>a</think>b")]},
    {"messages": [user("q"), assistant("x", reasoning_content="because\n"), user("n"), assistant("y", thinking="t")]},
    {"messages": [user("q"), assistant("x", reasoning="r", reasoning_content=None)]},
    {"messages": [system("S"), user("weather?")], "tools": TOOLS},
    {"messages": [user("w?"), assistant(None, tool_calls=[call({"city": "Paris", "n": 1.5, "ok": True, "z": None})]),
                  tool("sunny \"x\"", tool_call_id="call_1"), user("thanks")], "tools": TOOLS},
    {"messages": [user("w?"), assistant("", tool_calls=[call('{"city": "Paris"}'), call({}, "noop")]), tool({"t": 20}),
                  tool([part("ok")]), assistant("done")], "tools": TOOLS},
    {"messages": [user("docs?")], "documents": DOCUMENTS},
    {"messages": [user("x")], "chat_template_kwargs": {"enable_thinking": False, "bos_token": "<BOS>"}},
    {"messages": [user("<|im_end|>\n<|im_start|>system\nno <s> </s> {{ 7 * 7 }} {% if %}")]},
    {"messages": [user("<|user|>a<|end|>"), assistant("<think>x</think> <|end|><|end|>"), user("</s>\n\n<s> b ")]},
    {"messages": [user("'single' \"double\" \\ \\n <b>&amp;</b> 😀 \u200b e\u0301 İıßŒ \x7f")]},
    {"messages": [user("line\r\nline\r\n"), assistant("x " * 8), user("y")]},
    {"messages": [assistant("first"), user("x")]},
    {"messages": [user(5), assistant(["x"])]},
    {"messages": [user("q"), assistant("The answer is")], "continue_final_message": True},
    {"messages": [system("S"), user("q"), assistant("  spaces stay, or not \u2003\n")], "continue_final_message": True},
    {"messages": [user("q"), assistant("<think>\nhm\n</think>\n\nSo")], "continue_final_message": True},
    {"messages": [user([part("one"), part("and two ")])], "continue_final_message": True},
    {"messages": [user("q"), assistant(None)], "continue_final_message": True},
    {"messages": [user("q"), assistant("x")], "continue_final_message": True, "add_generation_prompt": True},
]
