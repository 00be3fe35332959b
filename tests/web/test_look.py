"""Colours that can be read: every pair of text and ground has the contrast that WCAG asks for (AA), light and dark."""

import re
from pathlib import Path

import pytest

import mainspring.web

CSS = (Path(mainspring.web.__file__).parent / "static/app.css").read_text(encoding="utf-8")
SOFT = ("accent", "good", "bad", "care", "calm")
PAIRS = [
    *((text, ground) for text in ("text", "soft", "faint") for ground in ("ground", "surface", "sunk")),
    *((name, f"{name}-soft") for name in SOFT),
    *((name, ground) for name in SOFT for ground in ("ground", "surface")),
    ("soft", "grey-soft"),
    ("on-accent", "accent"),
    ("text", "accent-soft"),
]


def colours(selector: str) -> dict[str, str]:
    block = CSS.split(f"{selector} {{", 1)[1].split("}", 1)[0]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))


LIGHT, DARK = colours(":root"), colours(':root[data-theme="dark"]')


def light_of(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((light_of(one), light_of(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_the_measure_is_the_known_one() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("named", ["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), PAIRS)
def test_text_can_be_read_on_its_ground(named: str, text: str, ground: str) -> None:
    palette = LIGHT if named == "light" else DARK
    assert contrast(palette[text], palette[ground]) >= 4.5


def test_dark_is_the_same_by_choice_and_by_the_system() -> None:
    assert colours(':root:not([data-theme="light"])') == DARK
    assert set(DARK) == set(LIGHT)
