"""What recording inside the process costs a row or a short statement: python3 rows-inside.py FATHOM PAIRS.

Runs each mode of rows-inside.c in turns, untraced and recorded, and prints a table: the processor's time of each row or statement, how much
of its speed is left (the median of the pairs' ratios, with its 95 % interval), by how much it is longer, and the same by the
recording's own measurement (`tracer.price.*`), which `fathom show` subtracts. A prepare is not in the latter.
"""
import json
import math
import os
import subprocess
import sys
import tempfile

# Steps and executions of each.
MODES = {"scan": (1, 0), "columns": (1, 0), "point": (2, 1), "insert": (1, 1), "prepare": (2, 1)}
ABOUT = {
    "scan": "row of a scan, one column",
    "columns": "row of a scan, five columns",
    "point": "SELECT by rowid, prepared once",
    "insert": "INSERT in memory",
    "prepare": "SELECT by rowid, prepared each time",
}


def median(values):
    values = sorted(values)
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


def interval(values):
    """The 95 % interval of the median, by order statistics."""
    values, n, below, k = sorted(values), len(values), 0.0, 0
    while below + math.comb(n, k) / 2**n <= 0.025:
        below += math.comb(n, k) / 2**n
        k += 1
    return values[max(k - 1, 0)], values[min(n - k, n - 1)]


def run(command):
    out = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    return json.loads(next(line for line in out.splitlines() if line.startswith(b"{")))


def estimate(fathom, archive, steps, executions):
    """The recording's own price of that many steps and executions: median, minimum and maximum, in ns."""
    facts = json.loads(subprocess.run([fathom, "show", "--json", archive], stdout=subprocess.PIPE, check=True).stdout)["environment"]
    price = lambda what, part: float(facts[f"tracer.price.{what}{part}"]["value"])
    return [steps * price("step", part) + executions * price("statement", part) for part in ("", ".low", ".high")]


fathom, pairs = sys.argv[1], int(sys.argv[2])
here = os.path.dirname(os.path.abspath(__file__))
print("| each | untraced, ns | recorded / untraced, rate | more, ns | by its own measurement, ns |")
print("|---|---:|---:|---:|---:|")
with tempfile.TemporaryDirectory() as directory:
    program, archive = os.path.join(directory, "rows"), os.path.join(directory, "t.fathom")
    subprocess.run(["cc", "-O2", "-o", program, os.path.join(here, "rows-inside.c"), "-lsqlite3"], check=True)
    for mode, (steps, executions) in MODES.items():
        command, found = [program, mode, "0.3"], []
        record = [fathom, "record", "--quiet", "--probes=inside", f"--output={archive}", "--", *command]
        for turn in range(pairs):
            results = {}
            for which in (command, record) if turn % 2 else (record, command):
                results[which is record] = run(which)["each_ns"]
            found.append((results[False], results[True], *estimate(fathom, archive, steps, executions)))
        ratios, more = [bare / recorded for bare, recorded, *_ in found], [recorded - bare for bare, recorded, *_ in found]
        (low, high), (least, most) = interval(ratios), interval(more)
        by_show = [median([f[i] for f in found]) for i in (2, 3, 4)]
        print(
            f"| {ABOUT[mode]} | {median([f[0] for f in found]):.0f} | {median(ratios):.2f} ({low:.2f} to {high:.2f}) "
            f"| {median(more):.0f} ({least:.0f} to {most:.0f}) | {by_show[0]:.0f} ({by_show[1]:.0f} to {by_show[2]:.0f}) |",
            flush=True,
        )
