"""An RPM package for each machine, by rpmbuild (Debian's package `rpm` has it); without it, a line says so."""

import pathlib
import shutil
import subprocess
import tempfile

import recipes
from release import Program, Release


def write(made: Release, output: pathlib.Path) -> None:
    """Writes a package for each machine."""
    if not shutil.which("rpmbuild"):
        print("SKIP rpm: rpmbuild is not installed")
        return
    for program in made.programs:
        with tempfile.TemporaryDirectory() as top:
            build(made, program, pathlib.Path(top), output)


def build(made: Release, program: Program, top: pathlib.Path, output: pathlib.Path) -> None:
    unpacked = top / "unpacked"
    for name, data in program.files.items():
        file = unpacked / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    spec = top / "fathom.spec"
    spec.write_text(recipes.fill((made.top / "packaging/rpm/fathom.spec.in").read_text(), made))
    defines = {"_topdir": top, "unpacked": unpacked, "_rpmdir": output, "_build_name_fmt": "%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm"}
    command = ["rpmbuild", "--quiet", "-bb", "--target", f"{program.architecture}-linux"]
    for name, value in defines.items():
        command += ["--define", f"{name} {value}"]
    subprocess.run([*command, spec], check=True, env={"PATH": "/usr/bin:/bin", "HOME": top, "SOURCE_DATE_EPOCH": str(made.date)})
