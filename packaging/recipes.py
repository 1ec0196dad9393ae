"""Templates: install.sh, and recipes for Homebrew, the AUR, Nix and Termux.

@name@ stands for a value, and lines from `@if ARCHITECTURE@` to `@end@` are left out where `make dist` made nothing for that machine.
"""

import base64
import pathlib
import re

from release import LICENCE, SUMMARY, Error, Release

RECIPES = {
    "homebrew/fathom.rb": 0o644,
    "aur/PKGBUILD": 0o644,
    "aur/.SRCINFO": 0o644,
    "nix/flake.nix": 0o644,
    "termux/build.sh": 0o644,
}
#: The public key that signs releases, as minisign prints it; install.sh asks for no signature until this file exists.
MINISIGN_KEY = "packaging/minisign.pub"


def values(made: Release) -> dict:
    """The values that templates may name."""
    key = made.top / MINISIGN_KEY
    found = {
        "VERSION": made.version,
        "REPOSITORY": made.repository,
        "BASE": made.base,
        "SUMMARY": SUMMARY,
        "LICENCE": LICENCE,
        "MINISIGN_KEY": key.read_text().split("\n")[1].strip() if key.exists() else "",
    }
    for program in made.programs:
        found |= {
            f"ARCHIVE.{program.architecture}": program.archive.name,
            f"TARGET.{program.architecture}": program.target,
            f"SHA256.{program.architecture}": program.digest.hexdigest(),
            f"SRI.{program.architecture}": "sha256-" + base64.b64encode(program.digest.digest()).decode(),
        }
    return found


def fill(template: str, made: Release) -> str:
    """A template with its values."""
    present = {program.architecture for program in made.programs}
    lines, kept = [], True
    for line in template.splitlines(keepends=True):
        mark = re.fullmatch(r"@(?:if (\w+)|end)@\n", line)
        if mark:
            kept = mark[1] is None or mark[1] in present
        elif kept:
            lines.append(line)
    known = values(made)

    def value(name: re.Match) -> str:
        if name[1] not in known:
            raise Error(f"a template names @{name[1]}@, which has no value")
        return known[name[1]]

    return re.sub(r"@([A-Z][A-Z0-9_]*(?:\.\w+)?)@", value, "".join(lines))


def installer(made: Release, output: pathlib.Path) -> None:
    """Writes install.sh for this version."""
    script = output / "install.sh"
    script.write_text(fill((made.top / "packaging/install.sh").read_text(), made))
    script.chmod(0o755)


def write(made: Release, output: pathlib.Path) -> None:
    """Writes the recipes."""
    for name, mode in RECIPES.items():
        recipe = output / name
        recipe.parent.mkdir(parents=True, exist_ok=True)
        recipe.write_text(fill((made.top / f"packaging/{name.replace('/.', '/')}.in").read_text(), made))
        recipe.chmod(mode)
