"""What the exit codes mean. They are part of the surface: scripts and process managers read them."""

from enum import IntEnum

from mainspring.errors import DeclarationError, MainspringError, NodeGone, PayloadError, StoreError


class Code(IntEnum):
    """How a command ended."""

    DONE = 0
    FAILED = 1  # what was asked for did not work: not found, not allowed, or something is wrong with it
    USAGE = 2  # what was asked for makes no sense: a wrong option, value or app
    STORE = 3  # the store is not there, does not answer, or has other tables than this version needs
    ABANDONED = 4  # a worker had to leave something behind that would not stop
    INTERRUPTED = 130  # Ctrl-C, as shells count it


def code_of(error: MainspringError) -> Code:
    """Choose the code for an error that ends a command."""
    match error:
        case DeclarationError() | PayloadError():
            return Code.USAGE
        case NodeGone():
            return Code.FAILED
        case StoreError():
            return Code.STORE
        case _:
            return Code.FAILED
