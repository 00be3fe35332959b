"""Arguments that come as JSON, from a shell or over HTTP, read as the task reads them."""

from collections.abc import Mapping, Sequence

import msgspec

from mainspring.core.payload.misfit import Misfit
from mainspring.runtime.definition import Definition


def payload_from(definition: Definition, args: Sequence[object], kwargs: Mapping[str, object]) -> bytes:
    """Write arguments as they are stored. JSON has no datetimes or dataclasses: `definition.arguments.decode` makes them.

    Raises `PayloadError` for what the task does not take.
    """
    try:
        bound = definition.arguments.signature.bind(tuple(args), dict(kwargs))
    except Misfit as misfit:
        raise definition.arguments.envelope.refusal(misfit) from None
    return msgspec.json.encode({"v": 1, "args": bound})
