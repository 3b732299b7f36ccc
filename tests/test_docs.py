"""What the documents show must run, and every public name must stand in the API page."""

import gc
import inspect
import itertools
import re
import shlex
import tomllib
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import reconform
from reconform import ConformalDetector, Rule, cli
from reconform.display import GLOSSARY
from reconform.files.judge import judge_file
from reconform.methods import BySize, method_names

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
PACKAGES = ["detectors", "files", "metrics", "models", "reporting"]
PACKAGES += ["distributed", "statistics", "stream", "study"]
# Those with a page of their own in the reference: what is in `report` is in the package itself.
REFERENCE = [name for name in PACKAGES if name != "reporting"]


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


# Those of notebooks are run by test_notebooks.py, which also compares what they print.
# So are those of the page that also runs commands.
EXAMPLES = [page for page in PAGES if page.parent.name != "notebooks" and page.stem != "start"]


# Those that make their own files, so that all of the page can be pasted into an empty folder.
PASTED = {"daily", "dirty", "feedback", "tables", "time"}


def paste(block):
    for line in block.splitlines():
        command, _, log = line.partition(" >> ")
        if command.startswith("reconform "):
            done = CliRunner().invoke(cli.main, shlex.split(command)[1:])
            assert done.exit_code in (0, 3), (command, done.output)
            if log:
                with open(log, "a") as file:
                    file.write(done.stdout)


# Examples are set for reading: they leave journals open, and ask a fit on a frame about arrays.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore:X does not have valid feature names")
@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: page.name)
def test_examples_run(page, here):
    names = {}
    fenced = r"^```(python|bash)\n(.*?)^```"
    for language, block in re.findall(fenced, page.read_text(), flags=re.DOTALL | re.MULTILINE):
        if language == "python":
            exec(compile(block, str(page), "exec"), names)
        elif page.stem in PASTED:
            paste(block)
    names.clear()
    gc.collect()  # here, where open journals are expected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_have_options_that_exist(page):
    """Also those that cannot be run here, as their files or databases are the reader's."""
    for block in re.findall(r"^```bash\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            words = iter(shlex.split(line))
            if "_COMPLETE" not in line and "reconform" in words:  # moves on to the word behind it
                command = cli.main.get_command(None, next(words))
                arguments = list(itertools.takewhile(lambda word: word not in "|<>", words))
                # Raises UsageError for what it does not know.
                command.make_parser(click.Context(command)).parse_args(arguments)


def navigation():
    """Pages in the navigation of the site; read without MkDocs, which the tests do not need."""
    text = (ROOT / "mkdocs.yml").read_text()
    nav = re.search(r"^nav:\n((?:[ ]+- .*\n)+)", text, re.MULTILINE)[1]
    return re.findall(r"- [^:\n]+: (\S+\.md)$", nav, re.MULTILINE)


def test_every_page_is_in_the_navigation_of_the_site_and_every_entry_is_a_page():
    listed = navigation()
    assert len(listed) == len(set(listed))
    written = {str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")}
    made = {f"reference/{name}.md" for name in ("reconform", *REFERENCE)} | {"changelog.md"}
    assert set(listed) == written | made


def test_every_picture_is_shown_somewhere():
    said = "".join(page.read_text() for page in PAGES)
    pictures = {path.name for path in (ROOT / "docs").glob("**/*.svg")}
    shown = {name for name in pictures if re.search(rf"[(/]{re.escape(name)}\)", said)}
    assert pictures - shown == set()


def test_the_readme_is_short_with_pictures_two_commands_and_an_example():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 110
    assert len(blocks(ROOT / "README.md")) == 1
    assert re.findall(r"^    (\S+ \S+)", text, re.MULTILINE) == ["make demo", "make test"]
    assert len(re.findall(r"^!\[", text, re.MULTILINE)) == 2


def members(kind):
    """Names of ours that a class has: methods, properties, fields."""
    ours = [base for base in kind.__mro__ if base.__module__.startswith("reconform")]
    names = {name for base in ours for name in (*vars(base), *inspect.get_annotations(base))}
    return sorted(name for name in names if not name.startswith("_"))


def test_every_public_name_stands_in_the_api_page():
    text = (ROOT / "docs" / "api.md").read_text()
    packages = [reconform, *(import_module(f"reconform.{name}") for name in PACKAGES)]
    names = [name for package in packages for name in package.__all__]
    for kind in {getattr(reconform, name) for name in reconform.__all__}:
        if inspect.isclass(kind):
            names += members(kind)
    assert sorted({name for name in names if not re.search(rf"`{name}(\(\))?`", text)}) == []


def test_words_of_reports_and_help_are_in_the_glossary():
    page = (ROOT / "docs" / "glossary.md").read_text().lower()
    for word, meaning in GLOSSARY.items():
        assert re.search(rf"\*\*[^*]*{re.escape(word)}[^*]*\*\*|`{re.escape(word)}`", page), word
        assert re.fullmatch(r"[A-Z].*\.", meaning), word


METHODS = sorted({kind for kind, _ in method_names().values()} - {BySize}, key=lambda k: k.__name__)
DECIDES = [ConformalDetector, ConformalDetector.discover, Rule]


@pytest.mark.parametrize("kind", [*DECIDES, *METHODS], ids=lambda kind: kind.__name__)
def test_parameters_are_words_of_the_glossary_or_of_the_api_page(kind):
    text = "".join((ROOT / "docs" / page).read_text() for page in ("glossary.md", "api.md"))
    parameters = inspect.signature(kind).parameters.values()
    named = {one.name for one in parameters if one.kind is not one.VAR_KEYWORD} - {"self"}
    assert sorted(name for name in named if f"`{name}`" not in text) == []


def test_the_glossary_is_linked():
    for page in ("README.md", "docs/api.md"):
        assert "glossary.md)" in (ROOT / page).read_text(), page


# What a command does with an option, in a word.
VERBS = (
    "Aim|Append|Calibrate|Carry|Choose|Compare|Copy|Correct|Count|Cut|Decide|Do|Draw|End"
    "|Expect|Find|Fit|Flag|Impute|Instead|Judge|Keep|Leave|Let|Look|Number|Print|Put|Read"
    "|Replace|Save|Say|Score|Set|Show|Split|Take|Treat|Turn|Use|Weigh|Write"
)


def test_help_texts_are_sentences():
    for command in (cli.main.get_command(None, name) for name in cli.main.list_commands(None)):
        assert re.match(r"[A-Z].*\.$", command.help.split("\n")[0]), command.name
        for option in command.params:
            said = getattr(option, "help", None)
            if said is not None:
                where = (command.name, option.name, said)
                assert re.fullmatch(rf"({VERBS})\b.*\.", said, re.DOTALL), where


# Beside the pages of the site: those that a reader on GitHub sees.
READ = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("results/*.md")])


def anchors(page):
    """The anchors of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", READ, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" not in target:
            path, _, anchor = target.partition("#")
            there = page.parent / path if path else page
            assert there.exists(), target
            assert not anchor or anchor in anchors(there), target


@pytest.mark.parametrize("page", READ, ids=lambda page: page.name)
def test_names_options_and_targets_exist(page):
    """Wherever they stand, in a sentence as well as in an example."""
    text = page.read_text()
    for name in re.findall(r"`reconform\.([\w.]+?)(?:\(\))?`", text):
        assert exists(reconform, name.split(".")), name
    commands = [cli.main, *(cli.main.get_command(None, c) for c in cli.main.list_commands(None))]
    known = {"--help", *(one for c in commands for o in c.params for one in o.opts)}
    known |= {one for c in commands for o in c.params for one in o.secondary_opts}
    for option in re.findall(r"`(--[a-z][\w-]+)", text):
        assert option in known, option
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([\w-]+)", text)) - targets == set()
    for script, options in re.findall(
        r"python ((?:benchmarks|results|docs)/\S+\.py)([^`\n#]*)", text
    ):
        known_there = (ROOT / script).read_text()
        for option in re.findall(r"--[a-z][\w-]+", options):
            assert f'"{option}"' in known_there, (script, option)


def exists(thing, names):
    for name in names:
        if not hasattr(thing, name):
            try:
                thing = import_module(f"{thing.__name__}.{name}")
            except ImportError:
                return False
        else:
            thing = getattr(thing, name)
    return True


RECIPES = ("detector", "procedure", "p-value rule", "command-line option", "file format")


@pytest.mark.parametrize("thing", RECIPES)
def test_every_file_that_a_recipe_names_is_there(thing):
    text = (ROOT / "docs" / "architecture.md").read_text()
    recipes = re.findall(rf"^## Add an? {thing}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert len(recipes) == 1
    named = re.findall(r"`((?:src|tests|docs)/[\w/.]+)`", recipes[0])
    assert any(name.startswith("tests/") for name in named)
    named = [name.replace("NAME", "knn") for name in named]  # which stands for the new one
    assert [name for name in named if not (ROOT / name).exists()] == []


def _spoken():
    """Texts that speak of every method, the defaults included, by where they stand."""
    things = {
        "the package": reconform,
        "ConformalDetector": reconform.ConformalDetector,
        "discover": reconform.ConformalDetector.discover,
        "predict": reconform.ConformalDetector.predict,
        "judge_file": judge_file,
        "the command": cli.main,
    }
    start = (ROOT / "README.md").read_text().split("## ")[0]
    with open(ROOT / "pyproject.toml", "rb") as file:
        description = tomllib.load(file)["project"]["description"]
    start = {"README.md": start, "pyproject.toml": description}
    return {**start, **{name: inspect.getdoc(thing) for name, thing in things.items()}}


@pytest.mark.parametrize("where", _spoken())
def test_nothing_is_called_bounded_that_is_only_measured(where):
    assert not re.search(r"\b(un)?bound(ed|s)?\b|guaranteed", _spoken()[where], re.IGNORECASE)


def test_the_estimator_names_every_method():
    said = inspect.getdoc(reconform.ConformalDetector)
    assert [name for name in method_names() if f'``"{name}"``' not in said] == []


def test_batch_dependent_detectors_are_refused_except_by_full():
    for page in ("docs/models.md", "CHANGELOG.md", "docs/methods.md"):
        for paragraph in re.split(r"\n\n|\n- ", (ROOT / page).read_text()):
            if re.search(r"batch", paragraph) and "refuse" in paragraph:
                assert "full" in paragraph, (page, paragraph)


def rows_of_tables(page):
    """The rows of the tables of a page, without what makes them bold."""
    lines = page.read_text().replace("**", "").splitlines()
    return [line for line in lines if line.startswith("|") and not set(line) <= set("|- ")]


@pytest.mark.parametrize("part", ["findings", "auto", "detectors-means"])
def test_the_results_page_shows_what_the_study_wrote(part):
    shown = rows_of_tables(ROOT / "docs" / "results.md")
    assert [row for row in rows_of_tables(ROOT / f"results/{part}.md") if row not in shown] == []


def test_the_results_page_says_how_the_paper_was_met():
    page = " ".join((ROOT / "docs" / "results.md").read_text().split())
    met = (ROOT / "results" / "comparison.md").read_text().split("\n")[0]
    cells, share, more, most, largest = re.search(
        r": (\d+) of 288 cells \((.*?)\) .*?, (\d+) of 288 cells \((.*?)\) .* is (.*)\.", met
    ).groups()
    assert f"{cells} of 288 cells ({share}) lie within 2" in page
    assert f"{more} ({most}) within 3, and the largest difference is {largest}" in page
