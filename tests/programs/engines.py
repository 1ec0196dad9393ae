"""Reads every table of archives with another engine, and computes on them.

    python3 engines.py duckdb|datafusion|pyspark DIRECTORY...

DIRECTORY is an archive's `tables`, or an export of it. Each column must have a type that every engine computes with, every value must be
readable, and the engine's results for times (their number, their least and greatest difference) must equal what Python computes from
the same values. Prints one line per table: its directory, its name, its rows.
"""

import os
import sys


class DuckDb:
    types = {"BIGINT", "DOUBLE", "BOOLEAN", "VARCHAR"}
    whole = "BIGINT"

    def open(self, path):
        import duckdb

        self.sql = duckdb.sql
        self.sql(f"CREATE OR REPLACE VIEW t AS SELECT * FROM read_parquet('{path}')")
        return [(row[0], row[1]) for row in self.sql("DESCRIBE t").fetchall()]

    def rows(self, query):
        return self.sql(query).fetchall()

    def type_of(self, query):
        return self.sql(f"DESCRIBE {query}").fetchall()[0][1]


class DataFusion:
    types = {"int64", "double", "bool", "string_view", "string"}
    whole = "int64"

    def open(self, path):
        import datafusion

        self.context = datafusion.SessionContext()
        self.context.register_parquet("t", path)
        return [(field.name, str(field.type)) for field in self.context.table("t").schema()]

    def rows(self, query):
        return [tuple(row.values()) for row in self.context.sql(query).to_pylist()]

    def type_of(self, query):
        return str(self.context.sql(query).schema().field(0).type)


class Spark:
    types = {"bigint", "double", "boolean", "string"}
    whole = "bigint"

    def __init__(self):
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        self.spark = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.sql.shuffle.partitions", 1).getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")

    def open(self, path):
        table = self.spark.read.parquet(path)
        table.createOrReplaceTempView("t")
        return table.dtypes

    def rows(self, query):
        return [tuple(row) for row in self.spark.sql(query.replace('"', "`")).collect()]

    def type_of(self, query):
        return self.spark.sql(query.replace('"', "`")).dtypes[0][1]


def same(what, told, truth):
    if told != truth:
        sys.exit(f"{what}: {told}, and by the values {truth}")


def table(engine, path):
    columns = engine.open(path)
    for name, kind in columns:
        if kind not in engine.types:
            sys.exit(f"{path}: column {name} is {kind}")
    values = engine.rows("SELECT " + ", ".join(f'"{name}"' for name, _ in columns) + " FROM t")
    same(f"{path}: rows", engine.rows("SELECT count(*) FROM t")[0][0], len(values))
    times = [at for at, (name, kind) in enumerate(columns) if name.endswith("_ns") and kind == engine.whole]
    for a in times:
        for b in times:
            first, second = columns[a][0], columns[b][0]
            difference = f'SELECT min("{first}" - "{second}") AS least, max("{first}" - "{second}") AS most FROM t'
            same(f"{path}: type of {first} - {second}", engine.type_of(difference), engine.whole)
            known = [row[a] - row[b] for row in values if row[a] is not None and row[b] is not None]
            same(f"{path}: {first} - {second}", engine.rows(difference)[0], (min(known, default=None), max(known, default=None)))
        span = f'SELECT min("{columns[a][0]}") - max("{columns[a][0]}") AS span FROM t'
        known = [row[a] for row in values if row[a] is not None]
        same(f"{path}: {span}", engine.rows(span)[0][0], min(known) - max(known) if known else None)
    return len(values)


def main():
    engine = {"duckdb": DuckDb, "datafusion": DataFusion, "pyspark": Spark}[sys.argv[1]]()
    for directory in sys.argv[2:]:
        for name in sorted(os.listdir(directory)):
            if name.endswith(".parquet"):
                print(directory, name.removesuffix(".parquet"), table(engine, os.path.join(directory, name)))


main()
