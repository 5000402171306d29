"""Photograph every page of the built documentation, to be looked at: python scripts/look_at_pages.py [PAGE ...].

    make docs && python scripts/look_at_pages.py            # all pages, into .cache/looks
    python scripts/look_at_pages.py which.html index.html   # these

Each page is opened from disk at 1280 and at 360 pixels, light and dark. For each the script prints what a reader would stumble
over and a program can see: a page wider than its window, a picture that is missing or has no description, names of code that
are broken in the middle of a word, examples that are shown as quotations, whatever the console said, and any request that leaves
the disk. Then it searches for a word, from disk. It ends with 1 if anything is wrong.
"""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path

from browser import CHROMIUM, Browser, Tab

ROOT = Path(__file__).resolve().parent.parent
SITE, LOOKS = ROOT / ".cache" / "site", ROOT / ".cache" / "looks"
WIDTHS = (1280, 360)
#: What is seen from inside of a page: a list of sentences. Code in a table may break at a space, and where scripts/mkdocs_hooks.py lets it.
FAULTS = """(() => {
  const found = [], wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) found.push(`wider than its window: ${wide}`);
  for (const image of document.images) {
    if (!image.naturalWidth) found.push(`a picture is missing: ${image.src}`);
    if (!image.alt) found.push(`a picture has no description: ${image.src}`);
  }
  for (const code of document.querySelectorAll("td code, th code")) {
    const may = code.textContent.includes(" ") || code.querySelector("wbr");
    if (!may && code.getClientRects().length > 1) found.push(`broken in two: ${code.textContent}`);
  }
  for (const quote of document.querySelectorAll("blockquote blockquote blockquote"))
    found.push(`an example is shown as quotations: ${quote.textContent.trim().slice(0, 60)}`);
  return found;
})()"""


def photograph(tab: Tab, to: Path, *, width: int) -> None:
    """Write the whole page as a PNG."""
    height = tab.value("document.documentElement.scrollHeight")
    whole = {"x": 0, "y": 0, "width": width, "height": min(height, 12_000), "scale": 1}
    taken = tab.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=whole)
    to.write_bytes(base64.b64decode(taken["data"]))


def look_at(tab: Tab, page: Path, *, width: int, dark: bool) -> list[str]:
    """Photograph a page, and return what is wrong with it."""
    before = len(tab.requested()), len(tab.complaints())
    tab.open(page.as_uri(), width=width, height=900, dark=dark)
    tab.value("localStorage.clear()")  # the theme remembers what it showed first, and would show it again
    name = page.relative_to(SITE).with_suffix("").as_posix().replace("/", "-")
    photograph(tab, LOOKS / f"{name}-{width}-{'dark' if dark else 'light'}.png", width=width)
    outside = [address for address in tab.requested()[before[0] :] if not address.startswith(("file:", "data:"))]
    said = [str(event["params"])[:300] for event in tab.complaints()[before[1] :]]
    return [*tab.value(FAULTS), *(f"asks for {address}" for address in outside), *said]


def search(tab: Tab, word: str) -> int:
    """Type a word into the search of the front page, as it is opened from disk, and return how many pages are found."""
    tab.open((SITE / "index.html").as_uri(), width=1280)
    tab.value("document.querySelector('[data-md-component=search-query]').focus()")
    tab.call("Input.insertText", text=word)
    # Twenty seconds are enough for an index of a megabyte on a busy machine; a search that does not work never ends.
    tab.until("document.querySelector('.md-search-result__item') || performance.now() > 20000")
    return int(tab.value("document.querySelectorAll('.md-search-result__item').length"))


def main(names: list[str]) -> int:
    """Look at the pages of these names, or at all."""
    if CHROMIUM is None or not SITE.exists():
        sys.exit("There is no chromium (apt-get install chromium), or no site (make docs).")
    LOOKS.mkdir(parents=True, exist_ok=True)
    pages = [SITE / name for name in names] or [p for p in sorted(SITE.rglob("*.html")) if p.name != "404.html"]
    faults = 0
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(profile)
        try:
            for page in pages:
                tab = Tab(browser)
                for width in WIDTHS:
                    for dark in (False, True):
                        for fault in look_at(tab, page, width=width, dark=dark):
                            print(f"{page.relative_to(SITE)} at {width}, {'dark' if dark else 'light'}: {fault}")
                            faults += 1
                tab.close()
            found = search(Tab(browser), "InformativeResponse")
            print(f"the search finds InformativeResponse on {found} pages")
            faults += found == 0
        finally:
            browser.close()
    print(f"{len(pages)} pages, {faults} faults; look at {LOOKS.relative_to(ROOT)}")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
