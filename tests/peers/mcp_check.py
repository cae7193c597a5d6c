#!/usr/bin/env python3
"""mcp_check.py SERVER RESULT SLOW LOG: the official MCP client (pip install mcp) drives sm-mcp, and prints what it saw as one JSON object.

RESULT is a result file for `tabulate`.  The file SLOW, once it exists, makes the server's other programs wait until they are told to end, which they note in LOG.
"""
import asyncio
import json
import os
import pathlib
import sys

from mcp import Client, StdioServerParameters


async def main(server, result, slow, log):
    saw = {"progress": 0}
    parameters = StdioServerParameters(command=server, args=[], env=dict(os.environ))

    async def on_progress(progress, total, message):
        saw["progress"] += 1

    async with Client(parameters) as client:
        saw["protocol"] = client.protocol_version
        saw["tools"] = len((await client.list_tools()).tools)
        tables = await client.call_tool("tabulate", {"results": [result], "tables": ["summary"]})
        saw["called"] = not tables.is_error and "| emb4 | 141.7 |" in tables.content[0].text
        refusal = await client.call_tool("delete", {"name": "demo"})
        saw["refused"] = refusal.is_error and "confirm" in refusal.content[0].text
        uris = [str(r.uri) for r in (await client.list_resources()).resources]
        text = (await client.read_resource(next(u for u in uris if u.endswith("/e2b-emb4.json")))).contents[0].text
        saw["resource"] = json.loads(text)["build"] == "emb4"

        pathlib.Path(slow).touch()
        call = asyncio.create_task(client.call_tool("check", {"build": "b"}, progress_callback=on_progress))
        while saw["progress"] < 2:
            await asyncio.sleep(0.05)
        call.cancel()                                   # the SDK tells the server
        for _ in range(200):
            if "cleaned" in pathlib.Path(log).read_text():
                break
            await asyncio.sleep(0.05)
        saw["cancelled"] = "cleaned" in pathlib.Path(log).read_text()
    print(json.dumps(saw))


asyncio.run(asyncio.wait_for(main(*sys.argv[1:5]), 60))
