"""Names are pairs, and stay the pairs they were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.names import Name
from mainspring.errors import BadName

parts = st.text(min_size=1, max_size=255).filter(lambda text: text.isprintable() and not set(" :") & set(text))


@given(namespace=parts | st.just(""), local=parts)
def test_a_name_survives_being_printed_and_read(namespace: str, local: str) -> None:
    assert Name.parse(str(Name(namespace, local))) == Name(namespace, local)


@given(st.text(max_size=30))
def test_any_text_is_read_as_a_name_that_prints_the_same_or_is_refused(text: str) -> None:
    try:
        name = Name.parse(text)
    except BadName:
        return
    assert str(name) == text


def test_names_as_they_are_written() -> None:
    assert Name.parse("mail.send") == Name("", "mail.send")
    assert Name.parse("billing:invoices.send") == Name("billing", "invoices.send")
    assert str(Name("billing", "invoices.send")) == "billing:invoices.send"


def test_two_pairs_that_would_print_alike_with_dots_stay_apart() -> None:
    one, other = Name("uni", "system.sweep"), Name("uni.system", "sweep")
    assert one != other
    assert str(one) != str(other)
    assert one.dotted == other.dotted == "uni.system.sweep"
    assert Name("", "sweep").dotted == "sweep"


@pytest.mark.parametrize(("namespace", "local", "said"), [
    ("", "", "empty"),
    ("a", "", "empty"),
    ("a:b", "c", "colon"),
    ("a", "b:c", "colon"),
    ("a", "b c", "spaces"),
    ("a", "b\nc", "printed"),
    ("a", "\ud800", "printed"),
    ("a" * 256, "b", "255 characters, this has 256"),
])  # fmt: skip
def test_what_would_not_survive_is_refused(namespace: str, local: str, said: str) -> None:
    with pytest.raises(BadName, match=said):
        Name(namespace, local)


def test_a_text_that_begins_with_a_colon_is_no_name_of_the_programs_own() -> None:
    with pytest.raises(BadName, match="leave out the colon"):
        Name.parse(":send")


def test_a_name_is_the_same_as_its_text_and_is_found_by_it() -> None:
    plain, spaced = Name("", "send"), Name("billing", "send")
    texts: list[object] = ["send", "billing:send"]
    assert [plain, spaced] == texts
    assert [plain == text for text in (*texts, 7)] == [True, False, False]
    assert len({plain, Name("", "send"), spaced, *texts}) == 2
