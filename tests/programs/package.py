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
names = [name for name in dir(archive) if name in fathom._DECLARED["tables"] and name != "archives"]
with tempfile.TemporaryDirectory() as folder:
    copy = os.path.join(folder, "a.fathom")
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
