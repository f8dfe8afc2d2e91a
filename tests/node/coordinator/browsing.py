"""A real headless Chromium, and what is looked for on every page of the dashboard."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

PAGES = (
    "/", "/progress", "/members", "/rounds", "/rounds/{round}", "/refusals", "/network", "/versions", "/rollouts",
    "/credits", "/audit", "/events", "/peers", "/peers/{peer}", "/operator",
)  # fmt: skip
"""Every page; ``{round}`` and ``{peer}`` are filled in."""

PATIENCE = 90_000
"""Milliseconds after which what does not come is a failure. Nothing is expected to need them."""

expect.set_options(timeout=PATIENCE)
NARROW = 400
CONTRAST = 4.5

_LOW_CONTRAST = """(wanted) => {
  const parse = (text) => { const n = (text.match(/[\\d.]+/g) || []).map(Number);
    const unit = text.startsWith("color(srgb") ? 255 : 1;
    return n.length < 3 ? null : [n[0] * unit, n[1] * unit, n[2] * unit, n.length > 3 ? n[3] : 1]; };
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
  const lum = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => { v /= 255;
    return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (e) => { const layers = []; for (let at = e; at; at = at.parentElement) {
      const c = parse(getComputedStyle(at).backgroundColor); if (c && c[3] > 0) layers.push(c); }
    return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255, 1]); };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(); const e = walker.currentNode.parentElement;
    if (!text || !e || e.closest("[aria-hidden=true], script, style, #popup")) continue;
    if (e.disabled || e.closest("[disabled]")) continue;
    const style = getComputedStyle(e); const box = e.getBoundingClientRect();
    if (style.visibility === "hidden" || style.opacity === "0" || box.width === 0 || box.right < 0) continue;
    const svg = e.namespaceURI.includes("svg"); const ink = parse(svg ? style.fill : style.color);
    if (!ink) continue;
    const under = behind(e); const [a, b] = [lum(over(ink, under)), lum(under)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < wanted)
      found.push(`${ratio.toFixed(2)} <${e.tagName.toLowerCase()} ${e.className}> ${text.slice(0, 40)}`);
  }
  return [...new Set(found)].slice(0, 20);
}"""

_TOO_WIDE = """() => { const wide = document.documentElement.clientWidth;
  return document.documentElement.scrollWidth <= wide ? [] : [...document.querySelectorAll("body *")]
    .filter((e) => e.getBoundingClientRect().right > wide + 1).slice(0, 5)
    .map((e) => `<${e.tagName.toLowerCase()} ${e.className}> ${e.getBoundingClientRect().right}`); }"""

_NAMELESS = """() => {
  const named = (e) => e.getAttribute("aria-label") || e.innerText?.trim()
    || [...(e.labels || [])].some((l) => l.innerText.trim());
  const active = "#content :is(a, button, input, select, summary, [role=img]), header :is(a, button)";
  const nameless = [...document.querySelectorAll(active)]
    .filter((e) => e.checkVisibility() && !e.closest(".ag-root-wrapper") && !named(e));
  const colour = [...document.querySelectorAll(".good, .attention, .bad")]
    .filter((e) => e.checkVisibility() && !/[✔▲✖]/.test(e.innerText));
  const unreached = [...document.querySelectorAll(".scroll")]
    .filter((e) => e.scrollWidth > e.clientWidth && e.tabIndex < 0 && !e.querySelector("a, button"));
  return [...nameless.map((e) => `no name: ${e.outerHTML.slice(0, 80)}`),
    ...colour.map((e) => `colour alone: ${e.className}`),
    ...unreached.map((e) => `no key scrolls it: ${e.getAttribute("aria-label")}`)]; }"""


def why_not() -> str:
    """Why no browser can be driven here; empty where one can."""
    return "" if shutil.which("chromium") else "Chromium is not installed (Debian: apt install chromium)."


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless Chromium."""
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def watched(
    browser: Browser, url: str, dark: bool = False, width: int = 1280
) -> Iterator[tuple[Page, list[str]]]:
    """A tab, and what it complains about: errors on its console, failed requests, requests to a third party."""
    context = browser.new_context(
        base_url=url, color_scheme="dark" if dark else "light", viewport={"width": width, "height": 900}
    )
    page, problems = context.new_page(), list[str]()
    page.set_default_timeout(PATIENCE)

    def asked(request: Any) -> None:
        if not request.url.startswith((url, "data:", "blob:", url.replace("http", "ws"))):
            problems.append(f"third party: {request.url[:200]}")

    page.on(
        "console",
        lambda said: problems.append(f"console: {said.text[:300]}") if said.type == "error" else None,
    )
    page.on("pageerror", lambda error: problems.append(f"error: {str(error)[:300]}"))
    page.on("request", asked)
    page.on(
        "response",
        lambda answer: problems.append(f"{answer.status}: {answer.url}") if answer.status >= 400 else None,
    )
    try:
        yield page, problems
    finally:
        context.close()


def open_page(page: Page, path: str) -> None:
    """Open a page and wait until it is drawn and its clocks go."""
    page.goto(path)
    page.wait_for_function(
        "document.querySelector('h1') && document.querySelector('.verdict .sentence')?.textContent"
        " && [...document.querySelectorAll('[data-at]')].every((e) => e.textContent)"
        " && [...document.querySelectorAll('.chart')].every((e) => e.querySelector('svg'))"
    )


def low_contrast(page: Page) -> list[str]:
    """Texts whose contrast is below 4.5."""
    found: list[str] = page.evaluate(_LOW_CONTRAST, CONTRAST)
    return found


def nameless(page: Page) -> list[str]:
    """What has no name for who cannot see it, says something by colour alone, or needs a pointer to be scrolled."""
    found: list[str] = page.evaluate(_NAMELESS)
    return found


def too_wide(page: Page) -> list[str]:
    """What makes the page wider than the window; empty where nothing does."""
    found: list[str] = page.evaluate(_TOO_WIDE)
    return found
