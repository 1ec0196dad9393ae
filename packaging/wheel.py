"""A Python wheel that carries the program: `pip install fathom-io` puts `fathom` into an environment's bin.

Beside the program it holds the module `fathom_io` (python/fathom_io), for tests. The package `fathom` (python/), which reads archives, is
another one: both may be installed. The program is static:
both glibc's and musl's tags are true. `fathom-sql` is left out: with it, the wheel would be three times as large.
"""

import base64
import hashlib
import pathlib
import time
import zipfile

from release import LICENCE, SUMMARY, Program, Release

NAME = "fathom-io"
#: Older than any libc that a supported kernel comes with; a static program needs none of them.
PLATFORMS = "manylinux_2_17_{0}.manylinux2014_{0}.musllinux_1_1_{0}"


def write(made: Release, output: pathlib.Path) -> None:
    """Writes a wheel for each machine."""
    for program in made.programs:
        write_one(made, program, output)


def write_one(made: Release, program: Program, output: pathlib.Path) -> None:
    platforms = PLATFORMS.format(program.architecture)
    stem = f"{NAME.replace('-', '_')}-{made.version}"
    tags = "".join(f"Tag: py3-none-{platform}\n" for platform in platforms.split("."))
    licences = "".join(f"License-File: {name}\n" for name in program.licences())
    metadata = (
        f"Metadata-Version: 2.4\nName: {NAME}\nVersion: {made.version}\nSummary: {SUMMARY}\n"
        f"License-Expression: {LICENCE}\n{licences}Project-URL: Repository, {made.repository}\n"
        "Classifier: Environment :: Console\nClassifier: Operating System :: POSIX :: Linux\n"
        "Classifier: Programming Language :: Rust\nClassifier: Topic :: System :: Benchmark\n"
        "Requires-Python: >=3.7\nDescription-Content-Type: text/markdown\n\n"
        "The program `fathom`, one static binary: `sudo $(command -v fathom) demo` records 1,000 INSERTs and shows where their time\n"
        f"went. Reading a recording needs no root. The manual is in [the repository]({made.repository}). To read archives in Python,\n"
        "see the package in its directory `python`.\n"
    )
    description = f"Wheel-Version: 1.0\nGenerator: fathom packaging\nRoot-Is-Purelib: false\n{tags}"
    info = f"{stem}.dist-info"
    files = {f"{stem}.data/scripts/fathom": program.files["fathom"]}
    module = made.top / "python" / "fathom_io"
    sources = sorted([*module.glob("*.py"), module / "py.typed"])
    files |= {f"fathom_io/{path.name}": path.read_bytes() for path in sources}
    files[f"{info}/entry_points.txt"] = b"[pytest11]\nfathom_io.pytest_plugin = fathom_io.pytest_plugin\n"
    files |= {f"{info}/licenses/{name}": program.files[name] for name in program.licences()}
    files |= {f"{info}/METADATA": metadata.encode(), f"{info}/WHEEL": description.encode()}
    record = f"{info}/RECORD"
    files[record] = "".join(record_line(name, data) for name, data in files.items()).encode() + f"{record},,\n".encode()

    with zipfile.ZipFile(output / f"{stem}-py3-none-{platforms}.whl", "w") as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, time.gmtime(made.date)[:6])
            entry.create_system = 3  # Unix, whose modes follow
            entry.external_attr = (0o100755 if name.endswith("/scripts/fathom") else 0o100644) << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, 6)


def record_line(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"
