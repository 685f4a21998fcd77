"""Opens a report in a real browser and uses it: sorts, filters, hovers, switches, and takes pictures to look at.

    pip install selenium                     (and Chromium with its driver, from the system's packages)
    python benchmarks/page_in_browser.py page.html --pictures pictures

Ends with an error at the first thing that does not work, at any message in the browser's console and at any attempt to
reach the network.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

SIZES = {"wide": (1360, 900), "narrow": (390, 844)}
THEMES = ("light", "dark")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--pictures", type=Path, help="folder for screenshots of the whole page")
    arguments = parser.parse_args()
    page = arguments.page.absolute()
    with browser() as driver:
        driver.set_window_size(*SIZES["wide"])
        driver.get(page.as_uri())
        for check in (opens, sorts, filters, hovers, toggles_methods, switches_views, switches_theme, stays_alone):
            check(driver)
            print(f"{check.__name__}: ok")
        for size in SIZES:
            for theme in THEMES:
                fits(driver, page, size, theme, arguments.pictures)
                print(f"{size} {theme}: ok")
        stays_alone(driver)


@contextmanager
def browser() -> Iterator[webdriver.Chrome]:
    profile = tempfile.mkdtemp()
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for flag in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--hide-scrollbars",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()
        shutil.rmtree(profile, ignore_errors=True)


def expect(condition: object, what: str) -> None:
    if not condition:
        raise SystemExit(f"error: {what}")


def visible(driver: webdriver.Chrome, selector: str) -> list:
    return [node for node in driver.find_elements(By.CSS_SELECTOR, selector) if node.is_displayed()]


def opens(driver: webdriver.Chrome) -> None:
    expect(visible(driver, "h1"), "no heading")
    expect(visible(driver, "table.sortable tbody tr"), "no table")
    expect(visible(driver, "#curves svg path"), "no learning curves")
    expect(visible(driver, "#stability svg"), "no stability bars")
    expect(visible(driver, "#histograms svg path"), "no histograms")
    expect(len(visible(driver, "details.config")) >= 1, "no configurations")
    expect(driver.execute_script("return window.hostile") is None, "a hostile name was run")


def sorts(driver: webdriver.Chrome) -> None:
    table = visible(driver, "table.sortable")[0]
    column = len(table.find_elements(By.CSS_SELECTOR, "thead th")) - 1

    def values() -> list[float]:
        script = """return [...arguments[0].tBodies[0].rows].map(r => r.cells[arguments[1]].dataset.value)
                    .filter(v => v !== undefined && v !== '').map(Number)"""
        return driver.execute_script(script, table, column)

    button = table.find_elements(By.CSS_SELECTOR, "thead th button")[column]
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    before = sorted(values())
    button.click()
    expect(values() == before[::-1], "the first click does not sort downwards")
    button.click()
    expect(values() == before, "the second click does not sort upwards")


def filters(driver: webdriver.Chrome) -> None:
    box = Select(driver.find_element(By.ID, "task"))
    names = [option.get_attribute("value") for option in box.options][1:]
    for name in names[:3]:
        box.select_by_value(name)
        rows = visible(driver, "tr[data-task]")
        expect(rows and all(row.get_attribute("data-task") == name for row in rows), f"rows beside {name}")
        expect(len(visible(driver, "#curves .card")) == 1, f"curves beside {name}")
    box.select_by_value("")
    hidden = driver.execute_script("return document.querySelectorAll('[data-task][hidden]').length")
    expect(hidden == 0, "not all tasks come back")


def hovers(driver: webdriver.Chrome) -> None:
    shapes = ["#curves svg", "#stability rect[rx]", "#histograms svg"]
    for name in shapes:
        found = visible(driver, name)
        if not found and "rect" in name:
            continue  # no bars where all means are too small to divide by
        expect(found, f"nothing drawn in {name}")
        chart = found[0]
        driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", chart)
        ActionChains(driver).pause(0.3).move_to_element(chart).pause(0.1).perform()  # scrolling hides the tooltip
        tips = visible(driver, "#tip")
        expect(tips and tips[0].text.strip(), f"no tooltip in {name}")
    ActionChains(driver).move_to_element(driver.find_element(By.ID, "view")).perform()
    expect(not visible(driver, "#tip"), "the tooltip stays")


def toggles_methods(driver: webdriver.Chrome) -> None:
    button = visible(driver, "#methods button")[0]
    count = "return document.querySelectorAll('#curves svg path').length"
    before = driver.execute_script(count)
    button.click()
    expect(driver.execute_script(count) < before, "a method that was switched off is still drawn")
    button.click()
    expect(driver.execute_script(count) == before, "a method that was switched on again is not drawn")


def switches_views(driver: webdriver.Chrome) -> None:
    box = Select(driver.find_element(By.ID, "view"))
    for option in range(len(box.options)):
        box.select_by_index(option)
        expect(visible(driver, "#curves svg path"), f"nothing drawn in view {option}")
        expect(visible(driver, "table.sortable tbody tr"), f"no table in view {option}")
    box.select_by_index(0)


def switches_theme(driver: webdriver.Chrome) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    before = driver.execute_script(ground)
    driver.find_element(By.ID, "theme").click()
    expect(driver.execute_script(ground) != before, "the theme's button does nothing")
    driver.find_element(By.ID, "theme").click()
    expect(driver.execute_script(ground) == before, "the theme does not come back")


def stays_alone(driver: webdriver.Chrome) -> None:
    """Nothing in the console, nothing asked of the network."""
    messages = driver.get_log("browser")
    expect(not messages, f"in the console: {messages}")
    for entry in driver.get_log("performance"):
        event = json.loads(entry["message"])["message"]
        if event["method"] == "Network.requestWillBeSent":
            address = event["params"]["request"]["url"]
            inside = address.startswith(("file:", "data:", "chrome:"))  # the last: the tab before the page was opened
            expect(inside, f"the page asked for {address}")


def fits(driver: webdriver.Chrome, page: Path, size: str, theme: str, pictures: Path | None) -> None:
    """No sideways scrolling of the whole page; a picture of all of it."""
    width, height = SIZES[size]
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    )
    narrow = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == "narrow"}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)
    driver.get(page.as_uri())
    wide = driver.execute_script("return document.documentElement.scrollWidth")
    expect(wide <= width, f"{size}: the page is {wide} pixels wide on a screen of {width}")
    if pictures is None:
        return
    pictures.mkdir(parents=True, exist_ok=True)
    tall = driver.execute_script("return document.documentElement.scrollHeight")
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow | {"height": min(tall, 16_000)})
    driver.save_screenshot(str(pictures / f"{size}-{theme}.png"))


if __name__ == "__main__":
    main()
