"""What the tests of /mcp share: messages of both generations, and streams of events."""
import http.client
import json

MODERN, OLD = "2026-07-28", "2025-11-25"
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
VERSION, CAPABILITIES = "io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


def meta(**more):
    return {VERSION: MODERN, CAPABILITIES: {}, **more}


def message(method, params=None, ident=1, **more):
    return {"jsonrpc": "2.0", "id": ident, "method": method, **({} if params is None else {"params": params}), **more}


def modern_headers(method, params=None):
    headers = {**ACCEPT, "MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    name = (params or {}).get(NAMES.get(method))
    return {**headers, **({} if name is None else {"Mcp-Name": name})}


def post(server, body, headers):
    return server.request("POST", "/mcp", body if isinstance(body, (str, bytes)) else json.dumps(body), headers)


def ask_modern(server, method, params=None, ident=1, **headers):
    params = {**(params or {}), "_meta": meta()}
    return post(server, message(method, params, ident), {**modern_headers(method, params), **headers})


def result(reply):
    assert reply.status == 200, reply.body
    answer = reply.json()
    assert answer["jsonrpc"] == "2.0" and "error" not in answer, answer
    return answer["result"]


def fault(reply, status, code):
    answer = reply.json()
    assert (reply.status, answer["error"]["code"]) == (status, code), reply.body
    assert answer["error"]["message"] and "result" not in answer
    return answer


def call(server, name, arguments=None, **headers):
    """The structured answer of a tool."""
    got = result(ask_modern(server, "tools/call", {"name": name, "arguments": arguments or {}}, **headers))
    assert not got["isError"], got
    assert json.loads(got["content"][0]["text"]) == got["structuredContent"]
    return got["structuredContent"]


def refusal(server, name, arguments, **headers):
    """What a tool says to arguments that it does not take."""
    got = result(ask_modern(server, "tools/call", {"name": name, "arguments": arguments}, **headers))
    assert got["isError"] and "structuredContent" not in got, got
    return got["content"][0]["text"]


class Session:
    """A client that shook hands."""

    def __init__(self, server, version=OLD, headers=None):
        self.server, self.more = server, headers or {}
        hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        self.reply = post(server, message("initialize", hello), {**ACCEPT, **self.more})
        self.result = result(self.reply)
        self.id = self.reply.headers["Mcp-Session-Id"]
        self.version = self.result["protocolVersion"]
        assert self.send({"jsonrpc": "2.0", "method": "notifications/initialized"}).status == 202

    @property
    def headers(self):
        return {**ACCEPT, **self.more, "Mcp-Session-Id": self.id, "MCP-Protocol-Version": self.version}

    def send(self, body):
        return post(self.server, body, self.headers)

    def ask(self, method, params=None, ident=1):
        return self.send(message(method, params, ident))

    def stream(self, **headers):
        return Events(self.server, "GET", None, {**self.headers, **headers})

    def end(self):
        return self.server.request("DELETE", "/mcp", None, self.headers)


class Events:
    """A stream of events, read as they come."""

    def __init__(self, server, method, body, headers):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self.connection.request(method, "/mcp", body, headers)
        self.response = self.connection.getresponse()
        self.status = self.response.status

    def line(self):
        return self.response.readline().decode().rstrip("\n")

    def next(self):
        """(id, message) of the next event; None at the end."""
        ident = None
        while line := self.response.readline().decode():
            if line.startswith("id: "):
                ident = line[4:].strip()
            if line.startswith("data: "):
                assert self.response.readline() == b"\n"
                return ident, json.loads(line[6:])
        return None

    def close(self):
        self.response.close()
        self.connection.close()


def listen(server, wishes, ident="l", **headers):
    params = {"notifications": wishes, "_meta": meta()}
    stream = Events(server, "POST", json.dumps(message("subscriptions/listen", params, ident)),
                    {**modern_headers("subscriptions/listen"), **headers})
    assert stream.status == 200, stream.response.read()
    assert stream.response.headers["Content-Type"] == "text/event-stream"
    assert stream.response.headers["X-Accel-Buffering"] == "no"
    return stream
