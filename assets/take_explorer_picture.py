"""Take explorer.png, the README's picture of the explorer, with a browser.

pip install -e '.[browser]' && python assets/take_explorer_picture.py
"""

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

import gpt2np
from gpt2np.explorer import write_page

with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
    write_page(f"{folder}/page.html", gpt2np.load())
    browser = driver.chromium.launch(executable_path=shutil.which("chromium"))
    page = browser.new_page(
        viewport={"width": 1000, "height": 1620}, device_scale_factor=1.1, reduced_motion="reduce"
    )
    page.goto(Path(folder, "page.html").as_uri())
    page.wait_for_function("() => state.run && !frame && stale().length === 0")
    page.evaluate("document.querySelector('.flow').scrollIntoView()")
    page.mouse.move(0, 0)
    page.wait_for_timeout(500)
    page.screenshot(path=Path(__file__).with_name("explorer.png"))
    browser.close()
