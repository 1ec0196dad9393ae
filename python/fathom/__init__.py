"""Fathom's archives and fleets as Arrow tables.

    import fathom

    run = fathom.open("trace.fathom")
    run.operations                  # a pyarrow.Table; .to_pandas(), or polars.from_arrow(...)
    run.facts["device.model"]       # one fact's value

    fathom.open("/srv/fleet").operations

Tables and columns are those of docs/reference/tables.md. A table that this kind of archive lacks has no rows. A file with a wrong
checksum, without a column that is never empty, or with more rows than its size allows is rejected. If an archive's log has lost a part
since its tables were made, a warning says so. Nothing is written: an archive without tables needs `fathom reindex` first.
"""

import datetime
import errno
import functools
import json
import os
import re
import stat
import warnings
import zlib
from importlib import resources

import pyarrow
import pyarrow.compute
import pyarrow.dataset
import pyarrow.parquet

__all__ = ["Archive", "Error", "Fleet", "open"]

_TYPES = {"i64": pyarrow.int64(), "f64": pyarrow.float64(), "bool": pyarrow.bool_(), "text": pyarrow.string()}
_LAYOUT = 1  # of a fleet
_DECLARED = json.loads((resources.files(__package__) / "tables.json").read_text(encoding="utf-8"))


# A file's path in a fleet. It cannot lead outside of the fleet, whoever wrote the commit.
_DATA_PATH = re.compile(r"(\w+)/date=[0-9-]{10}/[A-Za-z0-9](?!.*\.\.)[A-Za-z0-9.-]*\.parquet", re.ASCII)


# What reading a file may cost: these bytes, and so many per byte of the file. As in crates/archive/src/tables/bound.rs.
_FREE_BYTES = 64 << 20
_CELL_BYTES_PER_BYTE = 64
_CELL_BYTES = 8


class Error(Exception):
    """Something cannot be read; the message says what, and what to do."""


def _schema(table, leading=()):
    columns = list(leading) + _DECLARED["tables"][table]
    return pyarrow.schema([pyarrow.field(column["name"], _TYPES[column["type"]], column["optional"]) for column in columns])


def _opened(path):
    """Opens a regular file; a pipe or a device, which could be read endlessly, is rejected."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no file")
    return file


def _bytes_of(path, size):
    """Reads a file of a table, unless it is larger than stated."""
    with _opened(path) as file:
        data = file.read() if size is None else file.read(size + 1)
    if size is not None and len(data) != size:
        raise ValueError(f"it has not {size} bytes")
    return data


def _table(data, schema):
    """Reads a Parquet file that is not trusted, as a table of this schema; `ValueError` says what is wrong with it."""
    file = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(data))
    bound = _FREE_BYTES + _CELL_BYTES_PER_BYTE * len(data)
    rows = file.metadata.num_rows
    if rows * len(schema) * _CELL_BYTES > bound:
        raise ValueError(f"it claims {rows} rows in {len(data)} bytes")
    found = {field.name: field.type for field in file.schema_arrow}
    for field in schema:
        if field.name not in found and not field.nullable:
            raise ValueError(f"missing column {field.name}")
        if field.name in found and found[field.name] != field.type:
            raise ValueError(f"column {field.name} has the type {found[field.name]}")
    # Texts stay in their dictionaries until it is known how long they are: a long one may be in every row.
    texts = [field.name for field in schema if field.type == pyarrow.string() and field.name in found]
    file = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(data), read_dictionary=texts)
    table = file.read([field.name for field in schema if field.name in found])
    columns = []
    for field in schema:
        if field.name not in found:
            columns.append(pyarrow.nulls(rows, field.type))
            continue
        column = table[field.name]
        if column.null_count and not field.nullable:
            raise ValueError(f"column {field.name} has empty cells")
        for chunk in column.chunks:
            if pyarrow.types.is_dictionary(chunk.type):
                lengths = pyarrow.compute.binary_length(chunk.dictionary).take(chunk.indices)
                bound -= pyarrow.compute.sum(lengths).as_py() or 0
                if bound < 0:
                    raise ValueError("it repeats texts until they take more memory than its size allows")
        columns.append(column.cast(field.type))
    return pyarrow.Table.from_arrays(columns, schema=schema)


def _read_json(path):
    try:
        with _opened(path) as file:
            found = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Error(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise Error(f"{path} is damaged: {error}") from None
    if not isinstance(found, dict):
        raise Error(f"{path} is damaged: it holds no object")
    return found


def _damaged(wrapped):
    """Reports a missing field, or one of a wrong type, as damage."""

    @functools.wraps(wrapped)
    def read(self, path, *rest):
        try:
            return wrapped(self, path, *rest)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise Error(f"{path} is damaged: {type(error).__name__}: {error}") from None

    return read


class _Facts(dict):
    """Values of facts by name; `.table` has the whole rows."""

    def __init__(self, table):
        super().__init__(zip(table["name"].to_pylist(), table["value"].to_pylist()))
        self.table = table


class Archive:
    """One archive, NAME.fathom."""

    @_damaged
    def __init__(self, path, meta):
        self.path, self.meta = path, meta
        if meta.get("table_version", 0) > _DECLARED["version"]:
            raise Error(f"{path} is of a newer Fathom (tables of version {meta['table_version']}); update this package")
        self._index = _read_json(os.path.join(path, "tables", "index.json"))
        if self._index is None:
            raise Error(f"{path} has no tables yet; `fathom reindex {path}` makes them")
        if self._index["table_version"] != _DECLARED["version"]:
            raise Error(
                f"{path} has tables of version {self._index['table_version']}, and this package reads {_DECLARED['version']}: "
                f"`fathom reindex {path}` makes them anew"
            )
        if not (isinstance(self._index["rows"], dict) and isinstance(self._index.get("sums", {}), dict)):
            raise Error(f"{path} has damaged tables; `fathom reindex {path}` rebuilds them")
        self._check_log()

    def _check_log(self):
        """Warns if the log is not the one that the tables were made from."""
        made_from = self._index.get("log")
        logs = [os.path.join(self.path, name) for name in ("events.log", "runs.jsonl")]
        log = next((log for log in logs if os.path.isfile(log)), None)
        if made_from is None or log is None:
            return
        size, before = os.path.getsize(log), made_from["bytes"]
        if size != before:
            remedy = f"`fathom reindex {self.path}` makes them anew" if size > before else "copy the archive again"
            warnings.warn(f"{log} has {size} bytes, but the tables were made from {before}: {remedy}", stacklevel=5)

    def __repr__(self):
        return f"<fathom.Archive {self.path} ({self.meta['kind']})>"

    def __dir__(self):
        return sorted({*super().__dir__(), *_DECLARED["tables"]})

    @property
    def tables(self):
        """Names of the tables that have rows."""
        return sorted(name for name, rows in self._index["rows"].items() if rows and name in _DECLARED["tables"])

    @property
    def facts(self):
        """Facts about the device and the run, by name."""
        return _Facts(self.table("facts"))

    def table(self, name):
        """Returns a table."""
        if name not in _DECLARED["tables"]:
            raise AttributeError(f"there is no table {name}; there are {', '.join(_DECLARED['tables'])}")
        schema = _schema(name)
        if name not in self._index["rows"]:
            return schema.empty_table()
        path = os.path.join(self.path, "tables", f"{name}.parquet")
        try:
            data = _bytes_of(path, None)
        except OSError as error:
            raise Error(f"{path} cannot be read: {error.strerror}; `fathom reindex {self.path}` rebuilds it") from None
        if zlib.crc32(data) != self._index.get("sums", {}).get(name, zlib.crc32(data)):
            raise Error(f"{path} is damaged (checksum mismatch); `fathom reindex {self.path}` rebuilds it")
        try:
            found = _table(data, schema)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise Error(f"{path} is damaged ({error}); `fathom reindex {self.path}` rebuilds it") from None
        if len(found) != self._index["rows"][name]:
            raise Error(f"{path} is damaged (it has {len(found)} rows, but index.json says {self._index['rows'][name]})")
        return found

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return self.table(name)


class Fleet:
    """A fleet in a directory: the same tables, across all of its archives."""

    @_damaged
    def __init__(self, path, info):
        self.path, self.info = path, info
        if info["version"] > _LAYOUT:
            raise Error(f"{path} is of a newer Fathom (layout {info['version']}); update this package")
        self._files, self.runs = self._state()

    def _state(self):
        """Returns the files and archives that the commits name."""
        files, runs, last = {}, set(), 0
        checkpoints = self._numbered("_checkpoints")
        if checkpoints:
            last = max(checkpoints)
            checkpoint = _read_json(checkpoints[last])
            files.update((file["path"], file) for file in checkpoint["files"])
            runs.update(checkpoint["runs"])
        commits = self._numbered("_log")
        for number in range(last + 1, max(commits, default=0) + 1):
            # Opened by name, since a listing may lack a commit that was made during it.
            name = os.path.join(self.path, "_log", f"{number:020}.json")
            commit = _read_json(name)
            if commit is None:
                raise Error(f"{self.path}: commit {number} is missing")
            if commit["version"] > _LAYOUT:
                raise Error(f"{name} is of a newer Fathom (layout {commit['version']}); update this package")
            for gone in commit["remove"]:
                files.pop(gone, None)
            files.update((file["path"], file) for file in commit["add"])
            runs.update(commit["runs"])
        for path, file in files.items():
            named = _DATA_PATH.fullmatch(path)
            if named is None or named[1] != file["table"]:
                raise Error(f"{self.path} is damaged: {path!r} is not the path of a file of its table {file['table']}")
        return files, runs

    def _numbered(self, directory):
        try:
            names = os.listdir(os.path.join(self.path, directory))
        except FileNotFoundError:
            return {}
        return {
            int(name[:-5]): os.path.join(self.path, directory, name) for name in names if re.fullmatch(r"[0-9]{20}\.json", name)
        }

    def __repr__(self):
        return f"<fathom.Fleet {self.path} ({len(self.runs)} archives)>"

    def __dir__(self):
        return sorted({*super().__dir__(), *_DECLARED["tables"]})

    def dataset(self, name):
        """Returns a table as a pyarrow.dataset.Dataset, which reads only the columns and rows that are needed.

        Its files are read without checking them: of a fleet that is not trusted, use `table`.
        """
        if name not in _DECLARED["tables"]:
            raise AttributeError(f"there is no table {name}; there are {', '.join(_DECLARED['tables'])}")
        schema = _schema(name, _DECLARED["leading"]).append(pyarrow.field("date", pyarrow.date32()))
        files = [os.path.join(self.path, file["path"]) for file in self._files.values() if file["table"] == name]
        hive = pyarrow.dataset.partitioning(pyarrow.schema([("date", pyarrow.date32())]), flavor="hive")
        if not files:
            return pyarrow.dataset.dataset(schema.empty_table())
        return pyarrow.dataset.dataset(
            sorted(files), schema=schema, format="parquet", partitioning=hive, partition_base_dir=os.path.abspath(self.path)
        )

    def table(self, name):
        """Returns a whole table."""
        if name not in _DECLARED["tables"]:
            raise AttributeError(f"there is no table {name}; there are {', '.join(_DECLARED['tables'])}")
        schema = _schema(name, _DECLARED["leading"])
        parts = []
        for file in sorted((file for file in self._files.values() if file["table"] == name), key=lambda file: file["path"]):
            path = os.path.join(self.path, file["path"])
            try:
                data = _bytes_of(path, file["bytes"])
                if zlib.crc32(data) != file["sum"]:
                    raise ValueError("checksum mismatch")
                part = _table(data, schema)
                day = datetime.date.fromisoformat(file["date"])
            except FileNotFoundError as error:
                raise Error(
                    f"{self.path} lacks a file ({error}); if `fathom fleet gc` removed it meanwhile, open the fleet again"
                ) from None
            except (pyarrow.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
                raise Error(f"{path} is damaged: {error}") from None
            days = pyarrow.repeat(pyarrow.scalar(day, pyarrow.date32()), len(part))
            parts.append(part.append_column(pyarrow.field("date", pyarrow.date32()), days))
        whole = schema.append(pyarrow.field("date", pyarrow.date32()))
        return pyarrow.concat_tables(parts) if parts else whole.empty_table()

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return self.table(name)


def open(path):
    """Opens an archive, or a fleet in a directory."""
    path = os.fspath(path)
    if "://" in os.fsdecode(path) and not os.path.exists(path):
        raise Error(f"{os.fsdecode(path)} is no path of this machine; a fleet in a bucket is read with its engine (docs/guide/fleet.md)")
    path = os.path.abspath(os.fsdecode(path))
    if not os.path.exists(path):
        raise Error(f"{path} does not exist")
    info = _read_json(os.path.join(path, "fleet.json"))
    if info is not None and info.get("format") == "fathom-fleet":
        return Fleet(path, info)
    meta = _read_json(os.path.join(path, "meta.json"))
    if meta is None or meta.get("format") != "fathom-archive":
        raise Error(f"{path} is no archive and no fleet")
    return Archive(path, meta)
