"""The command line: thin commands over functions that return data."""

from __future__ import annotations

import click

from .failures import Commands

# Where each command is, in the order of use. It is imported when it is asked for.
HOMES = {
    "detect": "detect",
    "clean": "clean_command",
    "fit": "model_commands",
    "score": "model_commands",
    "check": "check_command",
    "stream": "stream_command",
    "inspect": "model_commands",
    "demo": "demo_command",
    "study": "study_command",
}


@click.group(
    cls=Commands,
    homes=HOMES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="reconform")
def main() -> None:
    """Find anomalies in tables, at a false discovery rate that you choose.

    Exit codes: 0 all is well, 1 the input is at fault, 2 usage.
    """
