"""Makes the picture of the page in README.md and docs/page.md: python picture.py http://127.0.0.1:8080 docs/page.png,
with the server of `make demo` and the environment of `make page-test`. Debian's pngquant makes the file small:
pngquant --force --ext .png 128 docs/page.png."""
import sys

from playwright.sync_api import sync_playwright

PROMPT = "Question: What does lseek() return upon successful completion?\nAnswer:"
SEED, TOKENS = 1, 64

url, path = sys.argv[1:]
with sync_playwright() as playwright:
    arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
    browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=arguments)
    page = browser.new_page(viewport={"width": 1200, "height": 720}, color_scheme="light")
    page.goto(url)
    page.wait_for_selector("#facts:not(:empty)")
    page.click("#open-settings")
    page.fill("[name=seed]", str(SEED))
    page.fill("[name=temperature]", "0")
    page.fill("[name=max_tokens]", str(TOKENS))
    page.click("#settings button.main")
    page.fill("#prompt", PROMPT)
    page.press("#prompt", "Enter")
    page.wait_for_selector("#send:visible")
    page.locator(".token", has_text="offset").first.hover()
    page.screenshot(path=path, animations="disabled")
