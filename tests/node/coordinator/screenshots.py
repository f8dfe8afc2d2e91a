"""Pictures of every page, light and dark, wide and narrow: ``python -m tests.node.coordinator.screenshots FOLDER``."""

import sys
from pathlib import Path

from node.coordinator.demo_data import DemoRun
from node.coordinator.demo_site import ROUNDS, demo_site
from protocol.units import Address
from tests.node.coordinator.browsing import (
    NARROW,
    PAGES,
    chromium,
    low_contrast,
    nameless,
    open_page,
    too_wide,
    watched,
    why_not,
)


def main(folder: Path, url: str = "") -> int:
    """Write the pictures; 1 where a page has a fault, which is printed."""
    if why := why_not():
        print(why)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    if url:
        return take(folder, url)
    with demo_site(Address("127.0.0.1", 0), rounds=ROUNDS) as (address, _, _):
        return take(folder, address)


def take(folder: Path, url: str) -> int:
    """Pictures of a site that is served at ``url``."""
    faults = 0
    peer = DemoRun().peer(1)
    with chromium() as browser:
        for dark in (False, True):
            for width in (1280, NARROW):
                with watched(browser, url, dark, width) as (page, problems):
                    for path in PAGES:
                        where = path.format(round=ROUNDS - 1, peer=peer)
                        open_page(page, where)
                        page.wait_for_timeout(600)  # pictures only: charts are drawn whole
                        name = f"{path.strip('/').replace('/', '-').replace('{', '').replace('}', '') or 'overview'}"
                        picture = folder / f"{name}-{'dark' if dark else 'light'}-{width}.png"
                        page.screenshot(path=picture, full_page=width > NARROW)
                        found = [*too_wide(page), *low_contrast(page), *nameless(page), *problems]
                        problems.clear()
                        faults += len(found)
                        for each in found:
                            print(f"{picture.name}: {each}")
    print(f"{folder}: {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), *sys.argv[2:]))
