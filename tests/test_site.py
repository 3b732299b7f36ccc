"""The site that `make docs` built: every link and anchor, and what a reader sees in a real browser.

`.ci/run` builds it before the tests. MkDocs checks links between the sources; this checks the pages
that came out, those made from docstrings among them.
"""

import inspect
import os
import re
import shutil
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import reconform

ROOT = Path(__file__).parent.parent
SITE = ROOT / "site"
MADE_OF = [ROOT / "mkdocs.yml", ROOT / "CHANGELOG.md", *ROOT.glob("src/**/*.py")]
MADE_OF += [path for path in ROOT.glob("docs/**/*.*") if "__pycache__" not in path.parts]


def is_built():
    """Whether there is a site, and none of what it is made of is newer."""
    first = SITE / "index.html"
    newest = max(path.stat().st_mtime for path in MADE_OF)
    return first.exists() and first.stat().st_mtime >= newest


if not is_built():
    pytest.skip("needs the site as it is now: make docs", allow_module_level=True)

# The page of a server for what it does not have: its links begin at the root of the server.
PAGES = sorted(page for page in SITE.rglob("*.html") if page.name != "404.html")
# The last one is what the machines of GitHub have.
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
CHROMEDRIVER = shutil.which("chromedriver")


class Page(HTMLParser):
    """The anchors of a page, what it links to, what it loads, and pictures without a text."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.loaded, self.silent = set(), [], [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        said = dict(attrs)
        self.anchors.add(said.get("id"))
        if tag == "a" and "href" in said:
            self.links.append(said["href"])
        elif tag in ("img", "script", "iframe") and "src" in said:
            self.loaded.append(said["src"])
        elif tag == "link":
            self.loaded.append(said["href"])
        if tag == "img" and not said.get("alt"):
            self.silent.append(said["src"])


READ = {path: Page(path) for path in PAGES}


def leads_somewhere(path, target):
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return True  # other sites: not asked, as nothing here needs a network
    there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not there.is_file():
        return False
    return not parts.fragment or unquote(parts.fragment) in READ[there].anchors


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(SITE)))
def test_links_and_pictures_lead_somewhere(path):
    page = READ[path]
    assert [one for one in page.links + page.loaded if not leads_somewhere(path, one)] == []
    assert [one for one in page.loaded if "//" in one] == [], "nothing is fetched from elsewhere"
    assert page.silent == [], "a picture says in words what it shows"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    pytest.importorskip("selenium", reason="needs Selenium: pip install selenium")
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    if not (CHROMIUM and CHROMEDRIVER):
        pytest.skip("needs a browser: apt-get install chromium chromium-driver")
    options = ChromeOptions()
    options.binary_location = CHROMIUM
    # Chromium's sandbox refuses to run as root, which containers do.
    root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    quiet = ["--headless", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]
    for flag in (*quiet, *root, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(CHROMEDRIVER))
    yield driver
    driver.quit()


def resize(browser, width):
    """The window as a screen of this width; real windows have a least width."""
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


@pytest.mark.parametrize("width", [1300, 390], ids=["desktop", "phone"])
def test_no_page_is_wider_than_the_screen_and_nothing_fails(browser, width):
    resize(browser, width)
    for path in PAGES:
        browser.get(path.as_uri())
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width, path
        assert [line["message"] for line in browser.get_log("browser")] == [], path


@pytest.mark.parametrize(
    ("page", "name"), [("api", "ConformalDetector"), ("methods", "Jackknife"), ("cli", "inspect")]
)
def test_names_in_tables_are_not_broken_on_a_phone(browser, page, name):
    resize(browser, 390)
    browser.get((SITE / f"{page}.html").as_uri())
    lines = browser.execute_script(
        "return [...document.querySelectorAll('td:first-child code')]"
        ".filter(one => one.textContent === arguments[0]).map(one => one.getClientRects().length)",
        name,
    )
    assert lines
    assert set(lines) == {1}


@pytest.mark.parametrize("words", ["fdp_bound", "jackknife+", "--false-alarms", "Parquet"])
def test_the_search_works_from_the_disk(browser, words):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    resize(browser, 1300)
    browser.get((SITE / "index.html").as_uri())
    browser.find_element(By.CSS_SELECTOR, ".md-search__input").send_keys(words)
    found = (By.CSS_SELECTOR, ".md-search-result__link")
    first = WebDriverWait(browser, 30).until(lambda shown: shown.find_elements(*found))[0]
    assert first.get_attribute("href").startswith(SITE.as_uri())


def shown_text(page):
    """What a reader reads on a page, in one line."""
    text = (SITE / page).read_text(encoding="utf-8")
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", text)))


@pytest.mark.parametrize(
    ("page", "kind", "parameter"),
    [
        ("reconform", reconform.ConformalDetector, "larger_is"),
        ("reconform", reconform.ConformalDetector.rank, "variant"),
        ("reconform", reconform.Rule, "conditional"),
        ("reconform", reconform.Bootstrap, "aggregate"),
    ],
)
def test_choices_have_the_default_of_the_code(page, kind, parameter):
    """The reader of docstrings would take the first choice for it."""
    choices = re.search(rf"\b{parameter} : .*?\{{(.*?)\}}", kind.__doc__)[1].split(", ")
    default = repr(inspect.signature(kind).parameters[parameter].default).replace("'", '"')
    said = " or ".join(choices)
    shown = shown_text(f"reference/{page}.html").replace("'", '"')
    assert re.search(rf"\b{parameter} \( .*?{re.escape(said)}[^()]*, default: {default} \)", shown)


def test_names_in_docstrings_and_on_the_api_page_are_links():
    def leads(page, target):
        return any(link.endswith(f"#reconform.{target}") for link in READ[SITE / page].links)

    assert leads("reference/stream.html", "ConformalDetector")
    for name in ("Split", "ConformalDetector.fit", "Discoveries.fdp_bound", "Rule"):
        assert leads("api.html", name), name
