"""The release that is packed: its version and address from Cargo.toml, and what `make dist` made for each machine."""

import hashlib
import io
import pathlib
import re
import struct
import tarfile

ARCHITECTURES = ("x86_64", "aarch64")
SUMS = "SHA256SUMS"
SUMMARY = "Shows what each SQL statement of a program costs on a Linux machine, down to the disk's commands"
LICENCE = "Apache-2.0 OR MIT"


class Error(Exception):
    """What the user has to know."""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Program:
    """What an archive of `make dist` holds, for one machine."""

    def __init__(self, archive: pathlib.Path, architecture: str):
        self.archive = archive
        self.architecture = architecture
        self.target = archive.name.removesuffix(".tar.gz").split("-", 2)[2]
        data = archive.read_bytes()
        self.digest = hashlib.sha256(data)
        #: Paths below the archive's one directory, with their content.
        self.files = {}
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            for member in tar:
                if member.isfile():
                    self.files[member.name.split("/", 1)[1]] = tar.extractfile(member).read()
        for name in self.programs():
            check_static(f"{archive.name}: {name}", self.files[name], architecture)

    def programs(self) -> list:
        """fathom, and fathom-sql if `make dist` could build it."""
        if "fathom" not in self.files:
            raise Error(f"{self.archive} holds no fathom")
        return [name for name in ("fathom", "fathom-sql") if name in self.files]

    def licences(self) -> list:
        return sorted(name for name in self.files if "/" not in name and "LICENSE" in name)


class Release:
    """A version, its archives and packages."""

    def __init__(self, top: pathlib.Path, dist: pathlib.Path, base: str, date: int):
        self.top = top
        self.date = date
        workspace = (top / "Cargo.toml").read_text()
        self.version = field(workspace, r'^version = "(.*)"$', "Cargo.toml's version")
        self.repository = field(workspace, r'^repository = "(.*)"$', "Cargo.toml's repository")
        self.base = (base or f"{self.repository}/releases/download/v{self.version}").rstrip("/")
        # GitHub and Zenodo read that file where it is, so that it repeats both.
        citation = (top / "CITATION.cff").read_text()
        for name, expected in ("version", self.version), ("repository-code", self.repository):
            found = field(citation, rf'^{name}: "?([^"\n]*)"?$', f"CITATION.cff's {name}")
            if found != expected:
                raise Error(f"CITATION.cff has {name} {found}, but Cargo.toml {expected}")
        self.programs = []
        for architecture in ARCHITECTURES:
            archives = sorted(dist.glob(f"fathom-{self.version}-{architecture}-unknown-linux-*.tar.gz"))
            if len(archives) > 1:
                raise Error(f"{dist} holds several archives for {architecture}; remove the older: {archives}")
            self.programs += [Program(archive, architecture) for archive in archives]
        if not self.programs:
            raise Error(f"{dist} holds no archive fathom-{self.version}-*.tar.gz; run `make dist` first")
        self.debs = sorted(dist.glob(f"fathom_{self.version}_*.deb"))
        self.others = sorted(dist.glob("*.cdx.json"))

    def files(self) -> list:
        """What is published as `make dist` made it."""
        return [program.archive for program in self.programs] + self.debs + self.others


def field(text: str, pattern: str, what: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    if not found:
        raise Error(f"{what} is missing")
    return found[1]


def check_static(what: str, program: bytes, architecture: str) -> None:
    """Ensures that a program is for this machine and needs no library: wheel, image and packages claim that it runs anywhere."""
    machines = {"x86_64": 62, "aarch64": 183}
    if program[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", program, 18)[0] != machines[architecture]:
        raise Error(f"{what} is no program for {architecture}")
    start, size, count = struct.unpack_from("<Q", program, 32)[0], *struct.unpack_from("<HH", program, 54)
    interpreter = 3
    if any(struct.unpack_from("<I", program, start + i * size)[0] == interpreter for i in range(count)):
        raise Error(f"{what} is linked dynamically")


def write_sums(directory: pathlib.Path) -> None:
    """Writes the checksums of a directory's files, as `sha256sum --check` reads them."""
    files = sorted(file for file in directory.iterdir() if file.is_file() and file.name != SUMS)
    (directory / SUMS).write_text("".join(f"{sha256(file.read_bytes())}  {file.name}\n" for file in files))
