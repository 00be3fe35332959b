"""Names that stay what they are: a pair of namespace and local name.

The pair is the name. Its text form joins the two with a colon, which neither part may hold, so that reading the text
gives the same pair back: ("uni", "system.sweep") and ("uni.system", "sweep") are two names and print as two texts.
The program's own names have an empty namespace and print without a colon.
"""

from dataclasses import dataclass
from typing import Final

from mainspring.errors import BadName

LONGEST_PART: Final = 255


@dataclass(frozen=True, slots=True, order=True)
class Name:
    """A name under which something is registered and stored."""

    namespace: str
    local: str

    def __post_init__(self) -> None:
        if not self.local:
            raise BadName(f"{self.namespace}:", "the part after the namespace is empty")
        for part in (self.namespace, self.local):
            _check(part)

    @classmethod
    def parse(cls, text: str) -> "Name":
        """Read the text form back: "mail.send", or "billing:invoices.send" with a namespace."""
        namespace, colon, local = text.partition(":")
        if not colon:
            return cls("", text)
        if not namespace:
            raise BadName(
                text, "the namespace before the colon is empty; leave out the colon for a name of the program's own"
            )
        return cls(namespace, local)

    @property
    def dotted(self) -> str:
        """As others print it. Either part may have dots of its own, so it is compared with others, and never taken apart."""
        return f"{self.namespace}.{self.local}" if self.namespace else self.local

    def __str__(self) -> str:
        return f"{self.namespace}:{self.local}" if self.namespace else self.local

    def __eq__(self, other: object) -> bool:
        """Compare with another name, or with the text of one: users write texts, and mean the name."""
        if isinstance(other, Name):
            return self.local == other.local and self.namespace == other.namespace
        return str(self) == other if isinstance(other, str) else NotImplemented

    def __hash__(self) -> int:
        return hash(f"{self.namespace}:{self.local}" if self.namespace else self.local)


def _check(part: str) -> None:
    if len(part) > LONGEST_PART:
        raise BadName(part, f"a part may have {LONGEST_PART} characters, this has {len(part)}")
    if ":" in part:
        raise BadName(part, "a colon separates namespace and name, and may stand in neither")
    if not part.isprintable() or " " in part:
        raise BadName(part, "spaces and characters that cannot be printed are not allowed")
