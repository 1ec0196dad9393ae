"""Runs a notebook's cells and prints the value of its variable `comparison`, as JSON.

    python3 notebook.py plain|jupyter NOTEBOOK

plain: one cell after the other in this Python. jupyter: in a kernel, as a notebook is run (nbclient).
"""

import contextlib
import io
import json
import sys


def plain(notebook):
    names = {"__name__": "__main__"}
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    return names["comparison"], said.getvalue()


def jupyter(notebook):
    import nbclient
    import nbformat

    opened = nbformat.reads(json.dumps(notebook), as_version=4)
    nbformat.validate(opened)
    opened.cells.append(nbformat.v4.new_code_cell("import json; print(json.dumps(comparison))"))
    nbclient.NotebookClient(opened, timeout=600, kernel_name="python3").execute()
    texts = ["".join(out.get("text", "") for out in cell.get("outputs", [])) for cell in opened.cells if cell.cell_type == "code"]
    return json.loads(texts[-1]), "".join(texts[:-1])


with open(sys.argv[2], encoding="utf-8") as file:
    comparison, said = {"plain": plain, "jupyter": jupyter}[sys.argv[1]](json.load(file))
print(json.dumps({"comparison": comparison, "said": said}))
