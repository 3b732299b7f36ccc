"""Who speaks how: the library names parameters, the command line names options."""

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import reconform
from reconform.cli import declare, main
from reconform.cli.declare import SPELLED, in_options
from reconform.files import read_reference
from reconform.rule import Rule
from refusals import refused

SOURCE = Path(reconform.__file__).parent
OPTIONS = {
    declared
    for name in main.list_commands(None)
    for option in main.get_command(None, name).params
    if isinstance(option, click.Option)
    for declared in option.opts
}


def test_the_library_names_no_options():
    for path in SOURCE.rglob("*.py"):
        if path.parent != SOURCE / "cli":
            text = path.read_text(encoding="utf-8")
            text = re.sub(r"`reconform [a-z]+ [^`]*`", "", text)  # whole commands are completed
            found = re.findall(r"(?<![-\w])--[a-z][a-z-]*", text)
            assert found == [], path


def test_every_option_of_the_table_exists():
    assert {option for spelled in SPELLED.values() for option in spelled} <= OPTIONS
    assert {"fdr", "id_columns", "n_jobs", "trusted"} <= set(SPELLED)


@pytest.mark.parametrize(
    ("message", "spoken"),
    [
        ("fit with `prepare=True`.", "fit with --prepare."),
        ("`folds=5` and `fdr`", "--set folds=5 and --fdr"),
        ("`method='jackknife+'`", "--method jackknife+"),
        ("`decimal=','` or `delimiter='\\t'`", "--decimal ',' or --delimiter '\\t'"),
        ("`id_columns=['']`", "--id ''"),
        ("`id_columns=['Unnamed: 0']`", "--id 'Unnamed: 0'"),
        ("give `trusted=True`.", "give --trust-objects."),
        ("no parameter: 'a=1', a `b c`", "no parameter: 'a=1', a `b c`"),
    ],
)
def test_parameters_are_spelled_as_options(message, spoken):
    assert in_options(message) == spoken


def test_an_option_is_spelled_as_it_was_declared():
    """A toy option, declared as docs/architecture.md says: nothing else need be touched."""
    family = declare.family("toy", "Toys", dict, [declare.option("--my-toy", library="toys")])
    try:

        @click.command(cls=declare.Command, examples=["toy"])
        @family
        def command(toy):
            click.echo(toy["my_toy"])

        assert CliRunner().invoke(command, ["--my-toy", "car"]).output == "car\n"
        assert "Toys:" in CliRunner().invoke(command, ["--help"]).output
        assert in_options("`toys=['a']`, `my_toy`") == "--my-toy a, --my-toy"
    finally:
        del SPELLED["toys"], SPELLED["my_toy"]


def test_a_parameter_is_the_option_of_the_command_that_runs():
    """`rows` is --rows of update, and --window of stream, whichever was imported first."""
    for name, option in (("update", "--rows"), ("stream", "--window")):
        with click.Context(main.get_command(None, name), info_name=name):
            assert in_options("`rows`") == option


def test_python_is_told_of_parameters(tmp_path):
    (tmp_path / "text.csv").write_text("a,b\nx,2\n1,3\n2,3\n")
    refused(r"with `missing`, .* `drop`; .* `categories`\.$", read_reference, tmp_path / "text.csv")
    assert Rule(0.1).warning(10, 1_000).endswith("or a higher `fdr`.")


@pytest.mark.parametrize(
    ("arguments", "spoken"),
    [
        (["detect", "--group", "g", "--method", "cv", "--detector", "knn"], "--method cv has no"),
        (["detect", "--group", "g", "--method", "split", "--set", "repeats=3", "--detector", "knn"],
         "split on 3 splits has no ranks within groups"),
        (["detect", "--method", "split", "--set", "repeats=3"], "use --set repeats=1, or one"),
        (["fit", "--group", "g", "--anomalies", "new.csv"], "known --anomalies do not go with"),
        (["stream", "--by", "windows"], "fewer new rows at a time, or a higher --fdr"),
    ],
)  # fmt: skip
def test_the_command_line_speaks_no_python(arguments, spoken, here, rng):
    for name, shift in (("normal", 0), ("new", 9)):
        rows = rng.normal(size=(40, 2)) + shift
        lines = [f"{a:.3f},{b:.3f},{'uv'[k % 2]}\n" for k, (a, b) in enumerate(rows)]
        Path(f"{name}.csv").write_text("a,b,g\n" + "".join(lines))
    command, *options = arguments
    if command == "stream":
        split = ["--detector", "knn", "--method", "split", "--columns", "a,b"]
        CliRunner().invoke(main, ["fit", "normal.csv", *split, "--model", "m.rcad"])
    files = {"detect": ["normal.csv", "new.csv"], "fit": ["normal.csv", "--model", "m.rcad"]}
    columns = [] if command == "stream" or "--group" in options else ["--columns", "a,b"]
    given = [command, *files.get(command, ["m.rcad"]), *options, *columns]
    out = CliRunner().invoke(main, given, input="")
    assert spoken in out.stderr
    python = r"\b(?:method|procedure|conditional|(?<!--set )repeats|groups)="
    assert re.findall(python, out.stderr) == []
