"""Everything that is written can be read, in light and dark: WCAG 2 asks for a contrast of 4.5, and of 3 for large letters."""

import pytest
from playwright.sync_api import Browser

from mainspring.core.job import State
from mainspring.web.pages import ALL
from tests.browser.conftest import seen
from tests.browser.test_dashboard import failed, until
from tests.browser.test_pages import Shop, shop

__all__ = ["shop"]
pytestmark = [pytest.mark.needs("chromium"), pytest.mark.slow]

FAINT = r"""(least) => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const read = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  };
  const over = (above, below) => [0, 1, 2].map((at) => above[at] * above[3] + below[at] * (1 - above[3])).concat(1);
  const light = (colour) => {
    const [red, green, blue] = colour.slice(0, 3).map((one) => one / 255)
      .map((one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const found = [];
  for (const one of document.querySelectorAll("details")) one.open = true;
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement, text = walk.currentNode.textContent.trim();
    if (!text || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const above = [];
    for (let one = element; one; one = one.parentElement) above.push(getComputedStyle(one));
    const ground = above.reduceRight((below, style) => over(read(style.backgroundColor), below), [255, 255, 255, 1]);
    const ink = read(above[0].color);
    ink[3] *= above.reduce((all, style) => all * style.opacity, 1);
    const [dark, bright] = [light(over(ink, ground)), light(ground)].sort((one, other) => one - other);
    const size = parseFloat(above[0].fontSize), isLarge = size >= 24 || (size >= 18.6 && above[0].fontWeight >= 700);
    if ((bright + 0.05) / (dark + 0.05) < (isLarge ? 3 : least)) found.push(text.slice(0, 40));
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_written_stands_out(browser: Browser, shop: tuple[Shop, str], scheme: str) -> None:
    shop[0].letters(1)
    with seen(browser, *shop) as at:
        at.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        (id_,) = failed(at)
        running = at.program.enqueue("film.encode")
        until(at, running.id, State.RUNNING)
        at.program.do(lambda: at.program.app.store.pause("mail", by="ada", reason="they are down"))
        (node,) = at.program.do(at.program.app.store.nodes)
        about = (f"job?id={id_}", f"job?id={running.id}", f"node?id={node.node.id}", "schedule?name=often", "none-such")
        for path in (*(page.path for page in ALL if page.icon), "letters", *about):
            at.go(path)
            assert at.page.evaluate(FAINT, 4.5) == [], path
        assert at.page.evaluate(FAINT, 22), "it would be seen if it were not so"
