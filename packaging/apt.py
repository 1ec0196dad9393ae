"""The lists of an apt repository, beside the packages: `deb [...] URL ./` is all that a machine needs to know.

A release's page is a flat directory, and so is this repository: one list has the packages of all machines, of which apt takes its own.
Without a key, the lists are unsigned, which apt accepts only with [trusted=yes].
"""

import email.utils
import gzip
import hashlib
import pathlib
import subprocess

from release import Release

KEYRING = "fathom-archive-keyring.asc"


def write(made: Release, output: pathlib.Path, key: str) -> None:
    """Writes Packages, Packages.gz and Release, and with a key InRelease and the key itself."""
    entries = []
    for deb in made.debs:
        data = deb.read_bytes()
        control = run(["dpkg-deb", "--field", deb]).strip()
        fields = {"Filename": f"./{deb.name}", "Size": len(data), "SHA256": hashlib.sha256(data).hexdigest()}
        # The description is the last field, and the only one of several lines.
        head, about = control.split("\nDescription:", 1)
        entries.append(head + "".join(f"\n{name}: {value}" for name, value in fields.items()) + f"\nDescription:{about}\n")
    packages = "\n".join(entries).encode()
    lists = {"Packages": packages, "Packages.gz": gzip.compress(packages, 9, mtime=0)}
    for name, data in lists.items():
        (output / name).write_bytes(data)
    architectures = " ".join(deb.stem.rsplit("_", 1)[1] for deb in made.debs)
    sums = "".join(f" {hashlib.sha256(data).hexdigest()} {len(data)} {name}\n" for name, data in lists.items())
    text = (
        f"Origin: fathom\nLabel: fathom\nSuite: stable\nVersion: {made.version}\nArchitectures: {architectures}\n"
        f"Date: {email.utils.formatdate(made.date, usegmt=True).replace('GMT', 'UTC')}\nSHA256:\n{sums}"
    )
    (output / "Release").write_text(text)
    if key:
        run(["gpg", "--batch", "--yes", "--local-user", key, "--output", output / "InRelease", "--clearsign", output / "Release"])
        (output / KEYRING).write_text(run(["gpg", "--batch", "--armor", "--export", key]))


def run(command: list) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
