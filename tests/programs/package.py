"""Opens an archive and a fleet with the package `fathom`, and prints what it finds as JSON.

    python3 package.py ARCHIVE FLEET
"""

import json
import os
import shutil
import sys
import tempfile

import fathom


def rows(opened, names):
    return {name: getattr(opened, name).num_rows if name != "facts" else opened.table(name).num_rows for name in names}


archive, fleet = fathom.open(sys.argv[1]), fathom.open(sys.argv[2])
for opened in (archive, fleet):
    if len(dir(opened)) != len(set(dir(opened))) or "facts" not in dir(opened):
        sys.exit(f"dir() of {opened} names one thing twice, or lacks one")
names = [name for name in dir(archive) if name in fathom._DECLARED["tables"] and name != "archives"]
with tempfile.TemporaryDirectory() as directory:
    copy = os.path.join(directory, "a.fathom")
    shutil.copytree(sys.argv[1], copy)
    path = os.path.join(copy, "tables", "spans.parquet")
    with open(path, "r+b") as file:
        file.seek(100)
        file.write(b"\x00\x01")
    try:
        fathom.open(copy).spans
        refused = None
    except fathom.Error as error:
        refused = str(error)
# Damage is also detected without a checksum, and so is a missing file of a fleet.
with tempfile.TemporaryDirectory() as directory:
    copy = os.path.join(directory, "a.fathom")
    shutil.copytree(sys.argv[1], copy)
    index = os.path.join(copy, "tables", "index.json")
    with open(index, encoding="utf-8") as file:
        whole = json.load(file)
    spans = os.path.join(copy, "tables", "spans.parquet")
    os.truncate(spans, 100)
    for changed in [{"sums": {}}, {"sums": []}, {"sums": None}, {"rows": 5}]:
        with open(index, "w", encoding="utf-8") as file:
            json.dump({**whole, **changed}, file)
        try:
            fathom.open(copy).spans
            sys.exit(f"tables with {changed} were read")
        except fathom.Error:
            pass
    lacking = os.path.join(directory, "fleet")
    shutil.copytree(sys.argv[2], lacking)
    opened = fathom.open(lacking)
    shutil.rmtree(os.path.join(lacking, "spans"))
    try:
        opened.spans
        sys.exit("a file that is gone was read")
    except fathom.Error:
        pass
# A pipe in place of a file is rejected, not waited for.
for name in ["meta.json", "tables/index.json", "tables/spans.parquet"]:
    with tempfile.TemporaryDirectory() as directory:
        copy = os.path.join(directory, "a.fathom")
        shutil.copytree(sys.argv[1], copy)
        os.remove(os.path.join(copy, name))
        os.mkfifo(os.path.join(copy, name))
        try:
            fathom.open(copy).spans
            sys.exit(f"a pipe for {name} was read")
        except fathom.Error:
            pass
# Anything that is not a complete archive raises the package's own error.
with tempfile.TemporaryDirectory() as directory:
    whole = os.path.join(directory, "fleet")
    shutil.copytree(sys.argv[2], whole)
    newest = max(os.listdir(os.path.join(whole, "_log")))
    newest = f"{int(newest[:-5]) + 1:020}.json"
    for name, text in [
        ("fleet/_log/" + newest, '{"version": 99, "add": [], "remove": [], "runs": []}'),
        ("fleet/_log/" + newest, '{"version": 1, "add": [{"table": "spans", "path": "../a.parquet"}], "remove": [], "runs": []}'),
        ("fleet/_log/" + newest, '{"version": 1, "add": [{"table": "spans", "path": 5}], "remove": [], "runs": []}'),
        ("fleet/_log/" + newest, "{}"),
        ("fleet/_log/" + newest, "{"),
        ("fleet/fleet.json", '{"format": "fathom-fleet"}'),
        ("fleet/fleet.json", "[" * 100_000),
        ("a.fathom/meta.json", "[]"),
        ("a.fathom/meta.json", '{"format": "fathom-archive"}'),
        ("a.fathom/meta.json", '{"format": "fathom-archive", "table_version": "x"}'),
        ("plain", "text"),
    ]:
        path = os.path.join(directory, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        try:
            fathom.open(os.path.join(directory, name.split("/")[0]))
            sys.exit(f"{name}: {text[:60]} was opened")
        except fathom.Error:
            pass
print(
    json.dumps(
        {
            "archive": rows(archive, names),
            "fact": archive.facts["fs.type"],
            "fleet": {name: fleet.table(name).num_rows for name in fathom._DECLARED["tables"]},
            "refused": refused,
        }
    )
)
