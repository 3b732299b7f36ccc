"""Commands of the command line, in this process or in one of their own."""

import json
import re
import shlex
import subprocess
import sys

from click.testing import CliRunner

from reconform import cli
from reconform.cli import main

PROGRAM = [
    sys.executable,
    "-c",
    # Ctrl-C as in a terminal, also where the tests themselves run in the background.
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from reconform.cli import main; main(prog_name='reconform')",
]


def run(*arguments, code=0, input=None):
    """Run a command, given by its words or as a line, in this process.

    Its standard streams must be what the exit code promises; `check` speaks also with codes 3, 4.
    """
    words = list(map(str, arguments)) if len(arguments) > 1 else shlex.split(arguments[0])
    result = CliRunner().invoke(main, words, input=input)
    assert result.exit_code == code, result.output
    assert code in (0, 3, 4) or result.stdout == "" or words[0] == "check"
    if code != cli.BUG:  # a traceback shows lines of code
        # Options are spelled as options: no `drop`, no overwrite=True.
        python = r"`|(?<!--set )(?<!such as )\b[a-z_]+=\S"
        assert not re.search(python, result.stderr), result.stderr
    return result


def run_json(*arguments, **options):
    return json.loads(run(*arguments, "--json", **options).stdout)


def shell(*arguments, **options):
    """Run a command in a process of its own."""
    return subprocess.run([*PROGRAM, *map(str, arguments)], capture_output=True, **options)
