"""The page of a time series: its events and lines, as a browser shows them."""

import shutil

import numpy as np
import pandas as pd
import pytest

from reconform.reporting import render
from reconform.timeseries import Windows, fit


@pytest.fixture(scope="module")
def page():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"when": np.arange(1_400), "<b>": rng.normal(size=1_400), "w": 1.0})
    rows["w"] = rng.normal(size=1_400)
    rows.loc[1_100:1_160, "<b>"] += 6
    windows = Windows("when")
    found = fit(rows[:1_000], windows, random_state=0).discover(rows[1_000:], units=windows)
    return found, render(found)


def test_every_event_has_a_line_and_is_shaded(page):
    found, text = page
    section = text.split('id="events"')[1].split("</section>")[0]
    assert section.count('<rect class="event"') == len(found.events) >= 1
    assert section.count("<svg") == len({c for e in found.events for c in e.columns})
    assert "&lt;b&gt;" in section
    assert "<b>" not in section
    assert all(event.begin in section for event in found.events)


@pytest.mark.parametrize(("width", "theme"), [(1_200, "light"), (390, "dark")])
def test_the_line_fits_the_window(page, tmp_path, width, theme):
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("needs a browser: apt-get install chromium chromium-driver")
    (tmp_path / "page.html").write_text(page[1], encoding="utf-8")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for option in ("--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,900"):
        options.add_argument(option)
    service = webdriver.chrome.service.Service(driver)
    with webdriver.Chrome(options=options, service=service) as browser:
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
        )
        browser.get((tmp_path / "page.html").as_uri())
        browser.execute_script(f"document.documentElement.dataset.theme = '{theme}'")
        shown = browser.execute_script(
            "const s = document.querySelector('#events svg').getBoundingClientRect();"
            "const c = n => getComputedStyle(document.querySelector('#events ' + n));"
            "return [s.left, s.right, document.documentElement.scrollWidth, c('.event').fill,"
            " c('.range').fill, c('.values').stroke, c('svg').backgroundColor]"
        )
    left, right, wide, *colours = shown
    assert 0 <= left < right <= width
    assert wide <= width
    assert len(set(colours)) == 4
    assert "none" not in colours
