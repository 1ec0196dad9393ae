"""Archives that are not to be trusted, as the Python package sees them: prints by case what it said, and the memory that took."""

import json
import os
import resource
import sys
import warnings
import zlib

import fathom
import pyarrow
import pyarrow.parquet

SCHEMA = fathom._schema("shapes")


def made(directory, name, table, rows=None, log=None):
    """An archive with this table `shapes`."""
    path = os.path.join(directory, f"{name}.fathom")
    os.makedirs(os.path.join(path, "tables"))
    file = os.path.join(path, "tables", "shapes.parquet")
    pyarrow.parquet.write_table(table, file, compression="zstd", store_schema=False)
    with open(file, "rb") as data:
        sums = {"shapes": zlib.crc32(data.read())}
    index = {"table_version": 3, "made_by": "x", "rows": {"shapes": len(table) if rows is None else rows}, "sums": sums}
    if log is not None:
        index["log"] = {"bytes": log, "sum": 0}
        with open(os.path.join(path, "events.log"), "wb") as events:
            events.write(b"12345")
    meta = {"format": "fathom-archive", "version": 1, "kind": "trace", "table_version": 3}
    for name, value in (("meta.json", meta), ("tables/index.json", index)):
        with open(os.path.join(path, name), "w") as out:
            json.dump(value, out)
    return path


def shapes(rows, text="SELECT 1"):
    ids, kinds = pyarrow.array([1], pyarrow.int64()), pyarrow.array(["statement"])
    columns = [pyarrow.concat_arrays([ids] * rows), pyarrow.concat_arrays([kinds] * rows)]
    columns.append(pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * rows, pyarrow.int32()), pyarrow.array([text])))
    return pyarrow.table(columns, names=SCHEMA.names)


def said(path):
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            rows = len(fathom.open(path).shapes)
        return f"{rows} rows" + "".join(f"; {one.message}" for one in told)
    except fathom.Error as error:
        return f"refused: {error}"


def main(directory):
    few = shapes(2)
    plain = few.set_column(2, "text", few["text"].cast(pyarrow.string()))
    null = plain.set_column(0, "id", pyarrow.array([1, None], pyarrow.int64()))
    found = {
        "good": said(made(directory, "good", plain)),
        "without a required column": said(made(directory, "column", plain.drop_columns(["id"]))),
        "with empty cells": said(made(directory, "cells", null)),
        "of another type": said(made(directory, "type", plain.set_column(0, "id", pyarrow.array(["1", "2"])))),
        "with fewer rows than stated": said(made(directory, "rows", plain, rows=3)),
        "cut log": said(made(directory, "cut", plain, log=10)),
    }
    many = pyarrow.table(
        [pyarrow.concat_arrays([pyarrow.array([7] * 1000, pyarrow.int64())] * 5000)]
        + [pyarrow.concat_arrays([pyarrow.array(["a"] * 1000)] * 5000)] * 2,
        names=SCHEMA.names,
    )
    paths = [made(directory, "many", many), made(directory, "long", shapes(2000, "a" * (1 << 20)))]
    del many
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found["many rows"], found["long texts"] = map(said, paths)
    found["grew"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    json.dump(found, sys.stdout)


main(sys.argv[1])
