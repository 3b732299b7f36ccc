"""What the documents show must run, and every public name must stand in the API page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import reconform

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")])


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), names)


def test_the_readme_has_examples():
    assert len(blocks(ROOT / "README.md")) >= 2


def test_every_public_name_stands_in_the_api_page():
    text = (ROOT / "docs" / "api.md").read_text()
    missing = [name for name in reconform.__all__ if f"`{name}`" not in text]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target
