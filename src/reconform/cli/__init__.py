"""The command line: thin commands over functions that return data."""

from __future__ import annotations

import click

from .check_command import check
from .clean_command import clean
from .demo_command import demo
from .detect import detect
from .failures import Commands
from .model_commands import fit, inspect, score
from .stream_command import stream
from .study_command import study


@click.group(
    cls=Commands,
    commands=[detect, clean, fit, score, check, stream, inspect, demo, study],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="reconform")
def main() -> None:
    """Find anomalies in tables, at a false discovery rate that you choose.

    Exit codes: 0 all is well, 1 the input is at fault, 2 usage.
    """
