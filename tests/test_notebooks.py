"""The notebooks and the shown pages run, and show what they print today; the figures are drawn."""

import ast
import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))


@pytest.fixture(scope="module")
def gallery():
    pytest.importorskip("altair", reason="charts need pip install altair")
    path = ROOT / "docs" / "pictures" / "gallery.py"
    spec = importlib.util.spec_from_file_location("gallery", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_notebook_has_a_page():
    pages = {page.stem for page in (ROOT / "docs" / "notebooks").glob("*.md")}
    assert {script.stem for script in SCRIPTS} == pages
    assert pages == {"pump_line", "sensors", "table_quality", "transactions"}


@pytest.mark.filterwarnings("ignore::reconform.ReferenceWarning")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_the_page_is_what_the_notebook_does(gallery, script, here):
    page, pictures = gallery.run(script)
    written = script.with_suffix(".md").read_text("utf-8")
    assert page == written, f"python docs/pictures/gallery.py {script.stem}"
    for_jupyter = script.with_suffix(".ipynb").read_text("utf-8")
    assert for_jupyter == gallery.jupyter(script.read_text("utf-8"))
    assert pictures
    for file, picture in pictures.items():
        assert (gallery.HERE / file).exists()
        assert isinstance(picture.title, str), "what those read who do not see it"


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "start.md"], ids=str)
def test_the_page_shows_what_its_commands_print(gallery, page):
    assert page in gallery.SHOWN
    command = f"python docs/pictures/gallery.py {page.stem}"
    assert page.read_text("utf-8") == gallery.refreshed(page), command


def test_every_figure_is_drawn(gallery):
    """Also that its assertions hold; the numbers of a figure are those of its code."""
    for name, made in importlib.import_module("figures").FIGURES.items():
        assert (gallery.HERE / f"{name}.svg").exists()
        assert made().to_dict()


def test_cells_of_a_script(gallery):
    script = "# %% [markdown]\n# # Title\n#\n# Words.\n\n# %%\nx = 1  # %% no mark\nprint(x)\n"
    assert gallery.cells(script) == [
        ("text", "# Title\n\nWords."),
        ("code", "x = 1  # %% no mark\nprint(x)"),
    ]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_notebook_is_what_jupyter_reads(script):
    notebook = json.loads(script.with_suffix(".ipynb").read_text("utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    kinds = {"markdown": {"cell_type", "id", "metadata", "source"}}
    kinds["code"] = kinds["markdown"] | {"execution_count", "outputs"}
    assert all(set(cell) == kinds[cell["cell_type"]] for cell in notebook["cells"])
    code = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert any(source.endswith("\npicture") for source in code)
    ast.parse("\n".join(code))


def test_output_table_and_picture_are_shown(gallery, tmp_path):
    script = tmp_path / "small.py"
    first = "# %% [markdown]\n# # Title\n\n# %%\nprint('hello ')\ntable = '| a |'\n"
    second = "# %%\nimport altair\npicture = altair.Chart(title='A line')\n"
    script.write_text(first + second + "# %%\n1 + 1\n")
    page, pictures = gallery.run(script)
    assert re.search(r"```text\nhello\n```\n\n\| a \|\n\n```python\nimport", page)
    assert page.endswith("![A line](../pictures/small-1.svg)\n\n```python\n1 + 1\n```\n")
    assert list(pictures) == ["small-1.svg"]
