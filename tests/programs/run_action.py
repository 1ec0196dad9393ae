"""Executes the steps of a composite action, or the script of a GitLab job, as a runner does: in order, with expressions, conditions, outputs.

The actions that it uses are stood in for: a cache is a directory, an uploaded artefact is a copy and an address. Prints one line for each
step; the exit status is 0 if no step failed. Needs PyYAML.

    run_action.py ACTION.yml CONTEXT.json      the context has inputs, github, runner, and where artefacts and caches are
    run_action.py --gitlab TEMPLATE.yml JOB    the environment has what GitLab sets
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}")


def value_of(words: str, context: dict) -> str:
    """The value of `a.b.c`, or of a text in quotes."""
    words = words.strip()
    if words.startswith("'"):
        return words[1:-1]
    found = context
    for word in words.split("."):
        found = found.get(word, "") if isinstance(found, dict) else ""
    return found


def holds(condition: str, context: dict) -> bool:
    """Comparisons, and their conjunction: what the action uses."""
    for part in condition.split("&&"):
        left, operator, right = re.fullmatch(r"\s*(.+?)\s*(==|!=)\s*(.+?)\s*", part).groups()
        if (value_of(left, context) == value_of(right, context)) != (operator == "=="):
            return False
    return True


def expand(text: str, context: dict) -> str:
    return EXPRESSION.sub(lambda found: str(value_of(found[1], context)), str(text))


def read_outputs(path: str) -> dict:
    lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines)


def use(step: dict, context: dict, saved: list) -> dict:
    name = step["uses"].split("@")[0]
    given = {key: expand(text, context) for key, text in step.get("with", {}).items()}
    if name == "actions/cache":
        kept = pathlib.Path(context["stores"], "cache", given["key"])
        saved.append((pathlib.Path(given["path"]), kept))
        if kept.exists():
            shutil.copytree(kept, given["path"], dirs_exist_ok=True)
        return {"cache-hit": "true" if kept.exists() else ""}
    if name == "actions/upload-artifact":
        target = pathlib.Path(context["stores"], "artifacts", given["name"])
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(given["path"], target)
        return {"artifact-url": f"https://host.test/artifacts/{given['name']}"}
    raise SystemExit(f"{name}: no stand-in")


def run_composite(path: str, context: dict) -> int:
    action = yaml.safe_load(pathlib.Path(path).read_text(encoding="utf-8"))
    for name, about in action["inputs"].items():
        context["inputs"].setdefault(name, expand(about.get("default", ""), context))
    context["steps"], saved, failed = {}, [], False
    for step in action["runs"]["steps"]:
        name = step["name"]
        if failed or not holds(step.get("if", "'' == ''"), context):
            print(f"{name}: skipped", flush=True)
            continue
        if "uses" in step:
            outputs = use(step, context, saved)
            print(f"{name}: used {step['uses']}", flush=True)
        else:
            with tempfile.NamedTemporaryFile() as output:
                environment = os.environ | context["env"] | {"GITHUB_OUTPUT": output.name}
                environment["GITHUB_ACTION_PATH"] = str(pathlib.Path(path).resolve().parent)
                environment |= {key: expand(text, context) for key, text in step.get("env", {}).items()}
                where = expand(step.get("working-directory", "."), context)
                # As GitHub runs `shell: bash`.
                words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", expand(step["run"], context)]
                done = subprocess.run(words, env=environment, cwd=pathlib.Path(context["workspace"], where), check=False)
                outputs = read_outputs(output.name)
            failed = done.returncode != 0
            print(f"{name}: {'failed' if failed else 'passed'}", flush=True)
        if "id" in step:
            context["steps"][step["id"]] = {"outputs": outputs}
    # A cache is saved after the job, if it succeeded.
    for kept_from, kept in saved:
        if not kept.exists() and kept_from.exists():
            shutil.copytree(kept_from, kept)
    return int(failed)


def run_gitlab(path: str, name: str) -> int:
    job = yaml.safe_load(pathlib.Path(path).read_text(encoding="utf-8"))[name]
    environment = {key: str(text) for key, text in job["variables"].items()} | os.environ
    # Its runner executes all lines in one shell, which ends at the first failure.
    return subprocess.run(["bash", "-eo", "pipefail", "-c", "\n".join(job["script"])], env=environment, check=False).returncode


if sys.argv[1] == "--gitlab":
    sys.exit(run_gitlab(sys.argv[2], sys.argv[3]))
sys.exit(run_composite(sys.argv[1], json.loads(pathlib.Path(sys.argv[2]).read_text(encoding="utf-8"))))
