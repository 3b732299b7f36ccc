"""The page in a real browser, with the network off: what a reader does, and what they see."""

import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from reconform import ConformalDetector
from reconform.files.marks import read_marks
from reconform.reporting import render, report
from reconform.reporting.record import Run, TrackRecord, render_record

pytest.importorskip("selenium", reason="needs Selenium: pip install selenium")

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

# The last one is what the machines of GitHub have.
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
CHROMEDRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and CHROMEDRIVER),
    reason="needs a browser: apt-get install chromium chromium-driver",
)

HOSTILE = "</script><script>window.ran = true</script><img src=x onerror='window.ran = true'>"
QUIET = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--window-size=1200,900",
)


@pytest.fixture(scope="module")
def written(breast, tmp_path_factory):
    """A page about real data, with markup in every text that comes from outside."""
    benign, malignant = breast
    names = [HOSTILE if j == 13 else f"feature {j}" for j in range(30)]  # 13: far out in most
    reference = pd.DataFrame(benign[:178], columns=names)
    new = pd.DataFrame(np.vstack([benign[178:], malignant[:50]]), columns=names)
    new.index = [f"row {i}" for i in range(len(new))]
    new = new.rename(index={"row 200": HOSTILE})
    found = ConformalDetector("knn", "jackknife+", random_state=0).fit(reference).discover(new)
    path = tmp_path_factory.mktemp("page") / "report.html"
    report(found, path, title=HOSTILE)
    return found, path


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = ChromeOptions()
    options.binary_location = CHROMIUM
    # Chromium's sandbox refuses to run as root, which containers do.
    root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    for flag in (*QUIET, *root, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=Service(CHROMEDRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def page(browser, written):
    """The page, freshly opened offline; at the end there must be no error and no request."""
    _, path = written
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    browser.execute_cdp_cmd("Network.enable", {})
    browser.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    browser.get_log("performance")
    browser.get(path.as_uri())
    yield browser
    assert browser.get_log("browser") == []
    events = [json.loads(line["message"])["message"] for line in browser.get_log("performance")]
    asked = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
    urls = {request["request"]["url"] for request in asked}
    # What a URL holds itself is not fetched from anywhere.
    assert {url for url in urls if not url.startswith(("chrome", "data:"))} <= {path.as_uri()}


def text(page, identifier):
    return page.find_element(By.ID, identifier).text


def cells(page, column):
    every = "return [...document.querySelectorAll('#body tr')].map(r => [...r.cells]"
    return [row[column] for row in page.execute_script(every + ".map(c => c.textContent))")]


def all_cells(page, column):
    """Over all pages of the table."""
    while page.find_element(By.ID, "back").is_enabled():
        page.find_element(By.ID, "back").send_keys(Keys.ENTER)
    found = cells(page, column)
    while page.find_element(By.ID, "next").is_enabled():
        page.find_element(By.ID, "next").send_keys(Keys.ENTER)
        found += cells(page, column)
    return found


def test_the_slider_moves_counts_table_and_charts(page, written):
    found, _ = written
    slider = page.find_element(By.ID, "level")
    assert (text(page, "count"), text(page, "shown")) == (str(found.count), "10%")
    seen = {}
    # By keyboard: down to the first level, then up step by step.
    slider.send_keys(Keys.HOME)
    for _ in range(int(slider.get_attribute("max")) + 1):
        level = float(text(page, "shown").rstrip("%")) / 100
        seen[level] = int(text(page, "count"))
        assert text(page, "flagged").split()[0] == text(page, "count")
        slider.send_keys(Keys.ARROW_RIGHT)
    assert len(seen) == 53
    for level, count in seen.items():
        assert count == (found.q_values <= level + 1e-12).sum()
    assert len(set(seen.values())) > 10


def test_what_is_flagged_is_in_the_table_and_in_the_charts(page, written):
    found, _ = written
    slider = page.find_element(By.ID, "level")
    for key, level in ((None, 0.1), (Keys.END, 0.5), (Keys.HOME, 0.001)):
        if key:
            slider.send_keys(key)
        labels = set(np.asarray(found.index)[found.q_values <= level])
        assert set(all_cells(page, 1)) == labels
        assert text(page, "place").startswith("No rows" if not labels else "")
        bars = page.find_elements(By.CSS_SELECTOR, "#histogram rect.flag")
        assert any(float(bar.get_attribute("height")) for bar in bars) == bool(labels)
    assert text(page, "moved").startswith("The decision was made at 10%")
    page.find_element(By.ID, "reset").click()
    assert (text(page, "shown"), text(page, "moved")) == ("10%", "")
    assert page.switch_to.active_element.get_attribute("id") == "level"


def test_moving_away_and_back_gives_the_words_that_python_wrote(page, written):
    _, path = written
    source = path.read_text()
    page.find_element(By.ID, "level").send_keys(Keys.END, Keys.HOME)
    page.find_element(By.ID, "reset").click()
    for part in ("count", "headline", "meaning"):
        assert f'id="{part}">{text(page, part)}<' in source


def test_sorting_by_every_column(page, written):
    found, _ = written
    anomalous = found.to_frame()[found.mask[found.order]]
    heads = page.find_elements(By.CSS_SELECTOR, "#columns [data-key]")
    assert [h.get_attribute("aria-sort") for h in heads] == ["ascending", *["none"] * 5]
    for column, name in ((2, "score"), (3, "p_value"), (4, "q_value")):
        button = heads[column].find_element(By.TAG_NAME, "button")
        for press, order in ((Keys.ENTER, "ascending"), (Keys.SPACE, "descending")):
            button.send_keys(press)
            assert heads[column].get_attribute("aria-sort") == order
            shown = [float(value.replace("−", "-")) for value in all_cells(page, column)]
            assert shown == sorted(shown, reverse=order == "descending")
            assert sorted(shown) == sorted(float(f"{v:.4g}") for v in anomalous[name])
    heads[1].find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    numbers = [int(label.split()[1]) for label in all_cells(page, 1) if label.startswith("row ")]
    assert numbers == sorted(numbers)
    assert [h.get_attribute("aria-sort") for h in heads].count("none") == 5
    heads[5].find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    assert heads[5].get_attribute("aria-sort") == "descending"


def test_all_rows_can_be_shown_and_searched(page, written):
    found, _ = written
    Select(page.find_element(By.ID, "scope")).select_by_value("all")
    assert f"of {len(found)} rows" in text(page, "place")
    assert len(page.find_elements(By.CSS_SELECTOR, "#body .dot")) == 10
    page.find_element(By.ID, "find").send_keys("ROW 21")
    labels = all_cells(page, 1)
    assert sorted(labels) == sorted(label for label in found.index if "row 21" in label)
    assert len(labels) > 1


def test_markup_in_the_data_is_shown_and_not_run(page):
    assert page.execute_script("return window.ran === undefined")
    assert page.find_element(By.TAG_NAME, "h1").text.startswith(HOSTILE)
    page.find_element(By.ID, "find").send_keys("</script>")
    assert HOSTILE in all_cells(page, 1)
    assert any(HOSTILE[:70] in cell for cell in all_cells(page, 5))
    assert not page.find_elements(By.CSS_SELECTOR, "main img")


def test_light_and_dark(page):
    colours = "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]"

    def preferring(scheme):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        return page.execute_script(colours)

    light, dark = preferring("light"), preferring("dark")
    assert sum(map(int, light[0][4:-1].split(","))) > 600
    assert sum(map(int, dark[0][4:-1].split(","))) < 150
    assert light[1] != dark[1]
    toggle = page.find_element(By.ID, "theme")
    WebDriverWait(page, 5).until(lambda _: toggle.text == "Light")  # told with the next frame
    toggle.send_keys(Keys.ENTER)
    assert (page.execute_script(colours), toggle.text) == (light, "Dark")
    preferring("light")
    toggle.click()
    assert page.execute_script(colours) == dark


def test_every_control_is_reached_by_the_tab_key_and_named(page):
    reached = []
    for _ in range(90):
        page.switch_to.active_element.send_keys(Keys.TAB)
        active = page.switch_to.active_element
        if active.tag_name == "body":
            break
        reached.append(active.get_attribute("id") or active.text)
        assert active.accessible_name, reached[-1]
    wanted = {"theme", "level", "scope", "find", "next", "zoom", "Score", "p-value"}
    assert wanted <= set(reached)


def test_a_row_opens_by_keyboard_and_tells_why_it_stands_out(page, written):
    found, _ = written
    opener = page.find_elements(By.CSS_SELECTOR, "#body .opens")[0]
    assert opener.get_attribute("aria-expanded") == "false"
    opener.send_keys(Keys.ENTER)
    active = page.switch_to.active_element
    assert active.get_attribute("aria-expanded") == "true"
    told = page.find_element(By.CSS_SELECTOR, "tr.told").text
    expected = found.explain(position=int(found.order[0]))
    assert expected.headline in told
    assert expected.features[0].typical in told
    assert expected.nearest[0].label in told
    assert "does not prove a cause" in told
    assert page.execute_script("return window.ran === undefined")
    active.send_keys(Keys.SPACE)
    assert not page.find_elements(By.CSS_SELECTOR, "tr.told")
    theory = page.find_element(By.CSS_SELECTOR, ".theory")
    assert not theory.get_attribute("open")
    theory.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
    assert theory.get_attribute("open")


def test_the_header_of_the_table_stays_on_one_line_on_a_phone(page):
    metrics = {"width": 390, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        page.refresh()
        page.find_elements(By.CSS_SELECTOR, "#body .opens")[0].send_keys(Keys.ENTER)
        tops = page.execute_script(
            "return [...document.querySelectorAll('#columns button')]"
            ".map(b => [b.getBoundingClientRect().top, b.getBoundingClientRect().right])"
        )
        assert len({top for top, _ in tops}) == 1
        assert max(right for _, right in tops) <= 390
        assert page.execute_script("return document.documentElement.scrollWidth") <= 390
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("width", [1200, 390])
def test_groups_are_read_on_a_screen_and_on_a_phone(page, browser, written, tmp_path, width, rng):
    names = ["a rather long name of a type of machine, with its series 1000-X", "fan"]
    X, new = rng.normal(size=(3000, 2)), rng.normal(size=(100, 2))
    new[[3, 4, 5, 6, 70]] += 12
    cad = ConformalDetector("knn", "split", random_state=0).fit(X, groups=np.repeat(names, 1500))
    found = cad.discover(new, groups=np.repeat(names, 50))
    report(found, tmp_path / "groups.html")
    metrics = {"width": width, "height": 740, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        browser.get((tmp_path / "groups.html").as_uri())
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        every = "return [...document.querySelectorAll('#groups td')].map(c => "
        texts = browser.execute_script(every + "c.textContent)")
        assert texts[6:10] == ["fan", "1,500 (750 calibrate)", "50", str(found.groups[1].flagged)]
        inside = browser.execute_script(every + "c.getBoundingClientRect().right)")
        assert max(inside) <= width
        heads = browser.find_elements(By.CSS_SELECTOR, "#groups th")
        assert all(head.is_displayed() == (width > 500) for head in heads)  # else with the cells
        if width < 500:
            before = (
                "return getComputedStyle(document.querySelectorAll('#groups td')[3], '::before')"
            )
            assert "Flagged" in browser.execute_script(before + ".content")
            assert browser.execute_script(before + ".content.length") > 5
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.get(written[1].as_uri())
        browser.get_log("performance")


def test_a_list_of_all_rows_looks_otherwise(page, browser, written, tmp_path):
    found, _ = written
    plain = page.execute_script("return getComputedStyle(document.querySelector('.result')).color")
    assert page.find_element(By.CSS_SELECTOR, ".result").get_attribute("class") == "result"
    page.find_element(By.ID, "level").send_keys(Keys.HOME)
    assert page.find_element(By.CSS_SELECTOR, ".result").get_attribute("class") == "result none"
    every = replace(found, mask=np.ones(len(found), bool), q_values=np.full(len(found), 0.01))
    report(every, tmp_path / "all.html")
    browser.get((tmp_path / "all.html").as_uri())
    assert text(browser, "count") == f"All {len(found)}"
    assert (
        browser.execute_script("return getComputedStyle(document.querySelector('.result')).color")
        != plain
    )
    browser.get(written[1].as_uri())
    browser.get_log("performance")


def test_what_notebooks_show_needs_no_script(browser, written, tmp_path):
    found, _ = written
    (tmp_path / "cell.html").write_text(found._repr_html_() + found.explain()._repr_html_())
    browser.get((tmp_path / "cell.html").as_uri())
    assert browser.execute_script("return window.ran === undefined")
    assert browser.find_element(By.TAG_NAME, "svg").accessible_name.startswith("Histogram")
    assert len(browser.find_elements(By.CSS_SELECTOR, "table")) == 3
    assert HOSTILE in browser.find_element(By.TAG_NAME, "body").text or found.order[0] != 200
    assert not browser.find_elements(By.TAG_NAME, "img")


@pytest.fixture
def to_mark(browser, breast, tmp_path):
    """A page with a random sample, freshly opened with nothing kept; downloads go to a folder."""
    benign, malignant = breast
    cad = ConformalDetector("knn", "full", random_state=0).fit(benign[:178])
    found = cad.discover(np.vstack([benign[178:], malignant[:50]]), sample=12)
    page = render(found, ids=[HOSTILE, *range(1, len(found))], batch="ab" * 32, file="a, b.csv")
    path = tmp_path / "report.html"
    path.write_text(page)
    into = {"behavior": "allow", "downloadPath": str(tmp_path)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", into)
    browser.get(path.as_uri())
    browser.execute_script("localStorage.clear()")
    browser.refresh()
    yield found, browser, tmp_path / "marks.csv"
    browser.execute_script("localStorage.clear()")
    assert browser.get_log("browser") == []


def test_rows_are_marked_by_keyboard_kept_and_saved(to_mark):
    found, page, saved = to_mark
    keys = ["j", "r", "f", "u", "k", "c", "twice, ", '"seen"', Keys.ENTER, "f"]
    for key in keys:  # real, false alarm, unsure, and the third is a false alarm after all
        page.switch_to.active_element.send_keys(key)
    first = [int(i) for i in found.order[:3]]
    assert (
        text(page, "progress")
        == f"3 of {found.count} flagged rows marked, 0 of 12 of the random sample"
    )
    page.refresh()  # nothing is lost
    assert text(page, "progress").startswith("3 of")
    pressed = page.find_elements(By.CSS_SELECTOR, ".marks [aria-pressed=true]")
    assert [button.text for button in pressed] == ["real", "false alarm", "false alarm"]
    Select(page.find_element(By.ID, "scope")).select_by_value("sample")
    assert {int(cell) for cell in all_cells(page, 1)} == set(found.sample.tolist())
    page.find_element(By.CSS_SELECTOR, ".marks button.false").send_keys(Keys.SPACE)
    page.find_element(By.ID, "save").send_keys(Keys.SPACE)
    WebDriverWait(page, 10).until(lambda _: saved.is_file())
    marks = read_marks(saved)
    said = {row - 1: mark for row, mark in zip(marks.rows, marks.marks, strict=True) if mark}
    assert [said.pop(i) for i in first] == ["real", "false", "false"]
    ((drawn, mark),) = said.items()
    assert drawn in found.sample
    assert mark == "false"
    assert {row - 1 for row, yes in zip(marks.rows, marks.sample, strict=True) if yes} == set(
        found.sample.tolist()
    )
    assert sum(marks.flagged) == found.count
    assert (marks.batch, marks.file) == ("ab" * 32, "a, b.csv")
    comments = marks.table.column("comment").to_pylist()
    assert comments[marks.rows.index(first[2] + 1)] == 'twice, "seen"'


def test_a_mark_is_taken_back_and_the_page_fits_a_phone(to_mark):
    _, page, _ = to_mark
    real = page.find_element(By.CSS_SELECTOR, ".marks button.real")
    real.click()
    assert page.find_element(By.ID, "save").is_enabled()
    real.click()
    assert not page.find_element(By.ID, "save").is_enabled()
    narrow = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)
    assert page.execute_script("return document.documentElement.scrollWidth") == 390
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_record_is_one_glance(browser, tmp_path):
    runs = [
        Run(
            f"2026-03-{day:02d}T06:00:00Z",
            "",
            HOSTILE,
            100,
            5 * (day % 2),
            0.1,
            word,
            {"x": [0.0, 1.0, 2.0, 3.0, day]},
            frozenset(),
            real=4 * (day % 2),
            false=day % 2,
        )
        for day, word in zip(range(1, 31), ["holds"] * 27 + ["broken"] * 3, strict=True)
    ]
    path = tmp_path / "record.html"
    path.write_text(render_record(TrackRecord(tuple(runs)), HOSTILE))
    browser.get(path.as_uri())
    assert (
        "no longer fits since 28 March 2026" in browser.find_element(By.CLASS_NAME, "advice").text
    )
    assert len(browser.find_elements(By.CSS_SELECTOR, "svg rect.broken")) == 6
    assert browser.find_element(By.CLASS_NAME, "numbers").text.splitlines()[:2] == [
        "10.4%",
        "observed false discovery rate",
    ]
    assert browser.execute_script("return window.ran") is None
    assert browser.get_log("browser") == []
