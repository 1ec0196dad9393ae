"""Drives `fathom mcp` with the Model Context Protocol's own client.

    python3 mcp_client.py FATHOM DIRECTORY

Each tool is called as an assistant would, then with arguments that are missing, have a wrong type, or lead outside the directory. The
client checks every message against the protocol's schema.
"""

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

BUDGET = 1500
TRACE = "v3-linux-6.18-virtio"
SQL = 'SELECT "layer", count(*) AS n FROM spans GROUP BY 1 ORDER BY 1'


def check(holds, said):
    if not holds:
        sys.exit(f"not so: {said}")


async def answer(session, tool, arguments, refused=False):
    """Returns the tool's object, or its error."""
    result = await session.call_tool(tool, arguments)
    (text,) = [part.text for part in result.content]
    failed = result.is_error if hasattr(result, "is_error") else result.isError
    check(bool(failed) == refused, f"{tool} {arguments}: {text}")
    if refused:
        return text
    check(len(text) <= 4 * BUDGET, f"{tool}: {len(text)} characters for {BUDGET} tokens")
    said = json.loads(text)
    check(said["provenance"]["of"] and "cannot_claim" in said, f"{tool}: {text}")
    return said


async def talk(session):
    initialized = await session.initialize()
    check("cannot_claim" in initialized.instructions, initialized.instructions)
    tools = {tool.name for tool in (await session.list_tools()).tools}
    check(tools == {"list", "summary", "explain", "diff", "sql"}, tools)
    listed = await answer(session, "list", {})
    check(len(listed["result"]["archives"]) > 5, listed)
    for tool in ("summary", "explain"):
        said = await answer(session, tool, {"archive": TRACE})
        check(said["provenance"]["of"][0]["archive"].endswith(TRACE) and said["cannot_claim"], said)
    compared = await answer(session, "diff", {"a": "v3-bench", "b": "v3-bench-slower"})
    check(compared["result"]["results"][0]["verdict"] == "slower", compared)
    differs = await answer(session, "diff", {"a": TRACE, "b": "v2-linux-6.18-virtio"})
    check(any("too few" in claim for claim in differs["cannot_claim"]), differs)
    rows = await answer(session, "sql", {"archives": [TRACE], "query": SQL})
    check(sum(row["n"] for row in rows["result"]["rows"]) == 252, rows)
    for tool, arguments, part in [
        ("summary", {}, "archive"),
        ("summary", {"archive": 7}, "archive"),
        ("summary", {"archive": "/etc"}, "outside"),
        ("summary", {"archive": "../../Cargo.toml"}, "outside"),
        ("summary", {"archive": "no\nsuch\x1b[2J"}, "No such file"),
        ("diff", {"a": TRACE, "b": "v3-bench"}, "benchmark"),
        ("sql", {"archives": TRACE, "query": "SELECT 1"}, "list of paths"),
        ("sql", {"archives": [TRACE], "query": "SELECT nmae FROM facts"}, "nmae"),
        ("sql", {"archives": [TRACE], "query": "COPY spans TO '/tmp/x'"}, "only queries can be run, and this is COPY"),
        ("sql", {"archives": [TRACE], "query": "CREATE EXTERNAL TABLE p STORED AS CSV LOCATION '/etc/passwd'"}, "only queries can be run"),
        ("sql", {"archives": [TRACE], "query": "SELECT * FROM '/etc/passwd'"}, "not found"),
        ("sql", {"archives": [TRACE], "query": "--help"}, ""),
        ("rm", {}, "rm"),
    ]:
        why = await answer(session, tool, arguments, refused=True)
        check(part in why and "\x1b" not in why, f"{tool} {arguments}: {why}")
    print("every tool answers")


async def main():
    server = StdioServerParameters(command=sys.argv[1], args=["mcp", "--budget", str(BUDGET), sys.argv[2]])
    async with stdio_client(server) as (reads, writes), ClientSession(reads, writes) as session:
        await talk(session)


asyncio.run(main())
