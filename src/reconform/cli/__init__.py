"""The command line: thin commands over functions that return data."""

from __future__ import annotations

import click

from .failures import Commands

# Every command in the order of use: its module, imported when the command is asked for, and
# its line in the help.
HOMES = {
    "detect": ("detect", "Find the anomalies in NEW, given normal rows in REFERENCE."),
    "clean": ("clean_command", "Review the most unusual rows of REFERENCE, and leave some out."),
    "fit": ("model_commands", "Fit a detector to the normal rows in REFERENCE and save it."),
    "score": ("model_commands", "Find the anomalies in NEW with a saved MODEL."),
    "check": ("check_command", "Check NEW with a saved MODEL, for a schedule."),
    "stream": ("stream_command", "Decide about rows as they arrive on standard input."),
    "inspect": ("model_commands", "Say what is in a saved MODEL, and how large each part is."),
    "demo": ("demo_command", "Find malignant tumours among benign ones: no files are needed."),
    "study": ("study_command", "Compare detectors and methods on rows with labels."),
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
