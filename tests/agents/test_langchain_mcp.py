"""LangChain's adapters for MCP: the tools of the collection as tools of LangChain."""
import asyncio
import json

from langchain_mcp_adapters.client import MultiServerMCPClient


def test_tools_are_loaded_and_called(server):
    async def use():
        client = MultiServerMCPClient({"documents": {"transport": "streamable_http", "url": server.url + "/mcp"}})
        tools = {tool.name: tool for tool in await client.get_tools()}
        assert {"search", "read", "list", "fetch"} <= set(tools)
        return await tools["search"].ainvoke({"query": "connect two processes by a pipe", "k": 2})

    said = asyncio.run(asyncio.wait_for(use(), 120))
    text = said if isinstance(said, str) else said[0]["text"]
    assert len(json.loads(text)["results"]) == 2
