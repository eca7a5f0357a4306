"""The official Python client of MCP, over HTTP and over standard input and output, in both generations of the protocol."""
import asyncio
import json
import shutil
import subprocess

import httpx2
import mcp_types as types
import pytest
from http_fixtures import BUILD, Server
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

MODES = ["2026-07-28", "auto", "legacy"]


@pytest.fixture
def own(config, tmp_path):
    """A configuration whose collection the test may change."""
    values = json.loads(config.read_text())
    shutil.copytree(values["retrieval"]["collection"], tmp_path / "collection")
    values["retrieval"]["collection"] = str(tmp_path / "collection")
    file = tmp_path / "retro.json"
    file.write_text(json.dumps(values))
    return file


@pytest.fixture(params=["http", "stdio"])
def place(request, own, tmp_path):
    """What a client is told of the server: a URL, or a command."""
    if request.param == "stdio":
        yield StdioServerParameters(command=str(BUILD / "retro-server"), args=["mcp", "--config", str(own)], cwd="/")
        return
    running = Server(own, tmp_path)
    yield running.url + "/mcp"
    assert running.stop() == 0, running.log.read_text()


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 120))


async def follow(check, *arguments):
    """Awaits the check again until it holds."""
    while not (got := await check(*arguments)):
        await asyncio.sleep(0.05)
    return got


@pytest.mark.parametrize("mode", MODES)
def test_everything_is_found_and_called(place, mode):
    async def use():
        async with Client(place, mode=mode) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert list(tools) == ["search", "read", "list", "fetch", "table_list", "table_query", "add", "delete"]
            assert tools["search"].annotations.read_only_hint and tools["delete"].annotations.destructive_hint
            found = await client.call_tool("search", {"query": "connect two processes by a pipe", "k": 3})
            assert not found.is_error and len(found.structured_content["results"]) == 3
            first = found.structured_content["results"][0]
            read = await client.call_tool("read", {"id": first["id"], "start": first["start"], "end": first["end"]})
            assert read.structured_content["text"] == first["text"]
            assert (await client.read_resource(first["uri"])).contents[0].text == first["text"]
            bad = await client.call_tool("search", {"query": "a", "k": 99})
            assert bad.is_error and "k is 99" in bad.content[0].text
            with pytest.raises(MCPError) as raised:
                await client.read_resource("retro://documents/none")
            assert raised.value.error.code == (-32002 if client.session.protocol_version < "2026" else -32602)

    run(use())


@pytest.mark.parametrize("mode", MODES)
def test_resources_prompts_and_completion(place, mode):
    async def use():
        async with Client(place, mode=mode) as client:
            resources = (await client.list_resources()).resources
            assert resources and all(resource.uri.startswith("retro://documents/") for resource in resources)
            for resource in resources:
                assert len((await client.read_resource(resource.uri)).contents[0].text.encode()) == resource.size
            templates = (await client.list_resource_templates()).resource_templates
            assert "retro://paths/{path}" in [template.uri_template for template in templates]
            prompt = await client.get_prompt("answer", {"question": "What is a pipe?"})
            assert "What is a pipe?" in prompt.messages[0].content.text
            done = await client.complete(types.ResourceTemplateReference(uri="retro://paths/{path}"), {"name": "path", "value": resources[0].name[:2]})
            assert resources[0].name in done.completion.values

    run(use())


@pytest.mark.parametrize("mode", MODES)
def test_what_is_written_is_found(place, mode):
    async def use():
        async with Client(place, mode=mode) as client:
            added = await client.call_tool("add", {"text": "The zebra eats saffron.", "id": "zebra/1 ä", "path": "zebra.md"})
            assert added.structured_content["effect"] == "added"
            found = (await client.call_tool("search", {"query": "Who eats saffron?", "k": 1})).structured_content["results"][0]
            assert found["id"] == "zebra/1 ä" and found["path"] == "zebra.md"
            listed = {resource.name: resource.uri for resource in (await client.list_resources()).resources}
            assert (await client.read_resource(listed["zebra.md"])).contents[0].text == "The zebra eats saffron."
            gone = await client.call_tool("delete", {"id": "zebra/1 ä"})
            assert gone.structured_content["effect"] == "deleted"

    run(use())


def test_changes_are_heard_by_listening(place):
    async def use():
        async with Client(place, mode="2026-07-28") as client:
            await client.call_tool("add", {"text": "One.", "id": "a"})
            async with client.listen(resources_list_changed=True, resource_subscriptions=["retro://documents/a"]) as heard:
                assert heard.honored.resource_subscriptions == ["retro://documents/a"]
                await client.call_tool("add", {"text": "Two, and longer.", "id": "a"})
                kinds = {type(await anext(heard)).__name__, type(await anext(heard)).__name__}
                assert kinds == {"ResourcesListChanged", "ResourceUpdated"}

    run(use())


def test_changes_are_heard_in_a_session(place):
    async def use():
        heard = []

        async def hear(message):
            heard.append(getattr(message, "method", None))

        async def has(method):
            return method in heard

        async with Client(place, mode="legacy", message_handler=hear) as client:
            await client.send_ping()
            await client.call_tool("add", {"text": "One.", "id": "a"})
            await client.subscribe_resource("retro://documents/a")
            heard.clear()
            await client.call_tool("add", {"text": "Two.", "id": "a"})
            await follow(has, "notifications/resources/updated")
            await client.call_tool("add", {"text": "Another.", "id": "b"})
            await follow(has, "notifications/resources/list_changed")
            await client.unsubscribe_resource("retro://documents/a")

    run(use())


def test_a_key_is_sent_with_each_request(own, tmp_path):
    made = subprocess.run([BUILD / "retro-server", "--new-key", "a"], capture_output=True, text=True, check=True)
    (tmp_path / "keys").write_text(made.stdout)
    secret = made.stderr.split()[-1]
    running = Server(own, tmp_path, f"server.keys_file={tmp_path / 'keys'}")

    async def use(key):
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}) as http:
            async with Client(streamable_http_client(running.url + "/mcp", http_client=http), mode="2026-07-28") as client:
                return (await client.list_tools()).tools

    try:
        assert run(use(secret))
        with pytest.raises(Exception):
            run(use("wrong-key-that-is-long-enough"))
    finally:
        assert running.stop() == 0, running.log.read_text()
