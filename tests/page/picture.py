"""Makes the pictures of the page in README.md and docs/page.md, with the environment of `make page-test`:

    python picture.py answer http://127.0.0.1:8080 docs/page.png
    python picture.py documents http://127.0.0.1:8080 docs/page-documents.png
    python picture.py source http://127.0.0.1:8080 docs/page-source.png

The first is of the server of `make demo`, the others of a server of models/retro-docs and a folder of manuals, one of
them a PDF (mandoc -T pdf pipe.2), and a file that cannot be read. Debian's pngquant makes the files small:
pngquant --force --ext .png 128 docs/page*.png."""
import sys

from playwright.sync_api import sync_playwright

PROMPT = "Question: What does lseek() return upon successful completion?\nAnswer:"
SEARCH = "what does pipe() return"
SEED, TOKENS = 1, 64


def show_answer(page):
    page.click("#open-settings")
    page.fill("[name=seed]", str(SEED))
    page.fill("[name=temperature]", "0")
    page.fill("[name=max_tokens]", str(TOKENS))
    page.click("#settings button.main")
    page.fill("#prompt", PROMPT)
    page.press("#prompt", "Enter")
    page.wait_for_selector("#send:visible")
    page.locator(".token", has_text="offset").first.hover()


def show_documents(page):
    page.click("#open-documents")
    page.wait_for_selector("#documents-list li")
    page.click("#folders summary")


def show_source(page):
    page.click("#open-documents")
    page.fill("#documents-search", SEARCH)
    page.press("#documents-search", "Enter")
    page.locator("#passages button", has_text=".pdf").first.click()
    page.wait_for_selector("#reader .frame")


state, url, path = sys.argv[1:]
with sync_playwright() as playwright:
    arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
    browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=arguments)
    opened = browser.new_page(viewport={"width": 1200, "height": 720}, color_scheme="light")
    opened.goto(url)
    opened.wait_for_selector("#facts:not(:empty)")
    {"answer": show_answer, "documents": show_documents, "source": show_source}[state](opened)
    opened.screenshot(path=path, animations="disabled")
