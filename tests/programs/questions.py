"""Runs the shipped questions on a fleet's tables with another engine.

    python3 questions.py duckdb|pyspark|pysail FLEET QUESTION.sql...

Prints one line of JSON per question: its file, the names of the columns, and the rows. The queries run unchanged: the engine is only
told where the tables are.
"""

import datetime
import glob
import json
import os
import sys


def declared():
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "../../python/fathom/tables.json"), encoding="utf-8") as file:
        return json.load(file)


class DuckDb:
    kinds = {"i64": "BIGINT", "f64": "DOUBLE", "bool": "BOOLEAN", "text": "VARCHAR"}

    def __init__(self):
        import duckdb

        self.connection = duckdb.connect()

    def view(self, name, pattern):
        source = f"read_parquet('{pattern}', hive_partitioning = true)"
        self.connection.execute(f"CREATE VIEW {name} AS SELECT * FROM {source}")

    def empty(self, name, columns):
        nothing = ", ".join(f'CAST(NULL AS {self.kinds.get(kind, kind)}) AS "{column}"' for column, kind in columns)
        self.connection.execute(f"CREATE VIEW {name} AS SELECT {nothing} WHERE false")

    def ask(self, sql):
        found = self.connection.execute(sql)
        return [column[0] for column in found.description], found.fetchall()


class Spark:
    kinds = {"i64": "BIGINT", "f64": "DOUBLE", "bool": "BOOLEAN", "text": "STRING"}

    def __init__(self):
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
        builder = builder.config("spark.sql.ansi.enabled", "true").config("spark.sql.ansi.doubleQuotedIdentifiers", "true")
        self.spark = builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")

    def view(self, name, pattern):
        self.spark.read.parquet(os.path.dirname(os.path.dirname(pattern))).createOrReplaceTempView(name)

    def empty(self, name, columns):
        nothing = ", ".join(f'CAST(NULL AS {self.kinds.get(kind, kind)}) AS "{column}"' for column, kind in columns)
        self.spark.sql(f"SELECT {nothing} WHERE false").createOrReplaceTempView(name)

    def ask(self, sql):
        found = self.spark.sql(sql)
        return found.columns, [tuple(row) for row in found.collect()]


class Sail(Spark):
    """A server of Spark's protocol without a JVM, and Spark's client. In version 0.7, names are quoted by `, whatever its settings say,
    and a date in a directory's name is a string."""

    def __init__(self):
        from pysail.spark import SparkConnectServer
        from pyspark.sql import SparkSession

        self.server = SparkConnectServer(ip="127.0.0.1", port=0)
        self.server.start(background=True)
        _, port = self.server.listening_address
        self.spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
        self.spark.conf.set("spark.sql.ansi.enabled", "true")

    def view(self, name, pattern):
        rows = self.spark.read.parquet(os.path.dirname(os.path.dirname(pattern)))
        rows.withColumn("date", rows.date.cast("date")).createOrReplaceTempView(name)

    def empty(self, name, columns):
        nothing = ", ".join(f"CAST(NULL AS {self.kinds.get(kind, kind)}) AS `{column}`" for column, kind in columns)
        self.spark.sql(f"SELECT {nothing} WHERE false").createOrReplaceTempView(name)

    def ask(self, sql):
        return super().ask(sql.replace('"', "`"))


def plain(value):
    return value.isoformat() if isinstance(value, datetime.date) else value


def main():
    engine = {"duckdb": DuckDb, "pyspark": Spark, "pysail": Sail}[sys.argv[1]]()
    fleet, tables = sys.argv[2], declared()
    for name, columns in tables["tables"].items():
        pattern = os.path.join(fleet, name, "date=*", "*.parquet")
        if glob.glob(pattern):
            engine.view(name, pattern)
        else:
            typed = [(column["name"], column["type"]) for column in tables["leading"] + columns]
            engine.empty(name, [*typed, ("date", "DATE")])
    for path in sys.argv[3:]:
        with open(path, encoding="utf-8") as file:
            columns, rows = engine.ask(file.read())
        rows = [[plain(value) for value in row] for row in rows]
        print(json.dumps({"question": path, "columns": columns, "rows": rows}), flush=True)
    if sys.argv[1] == "pysail":
        # Its server keeps the process from exiting.
        os._exit(0)


main()
