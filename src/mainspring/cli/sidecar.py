"""What commands have to know of a store in a JSON file: where it is, and what to do where it is not a document of ours."""

import shlex
import sys
from typing import TYPE_CHECKING
from urllib.parse import quote

from mainspring.stores.port import Store

if TYPE_CHECKING:
    from mainspring.stores.sidecar import SidecarStore
    from mainspring.stores.sidecar.form import Standing


def sidecar_of(store: Store) -> "SidecarStore | None":
    """Return a store that is in such a file, as what it is."""
    sidecar = sys.modules.get("mainspring.stores.sidecar")  # whoever made such a store has loaded it
    return store if sidecar is not None and isinstance(store, sidecar.SidecarStore) else None


def url_of(store: "SidecarStore") -> str:
    """Return the URL of its folder, wherever that is read."""
    return f"sidecar:///{quote(str(store.path.parent.parent))}"


def says(standing: "Standing") -> str:
    """Say what there is in place of a document of ours; nothing, if there is one."""
    return {
        "missing": "there is no such file",
        "empty": "the file is empty",
        "strange": "it is a list, and nothing in it is a row of schedules",
        "foreign": "it has rows as uni writes them, and is no document of ours yet",
    }.get(standing, "")


def advice(store: "SidecarStore", standing: "Standing") -> str:
    """Say the one thing to do about that."""
    command = f"mainspring migrate --url {shlex.quote(url_of(store))}"
    return {
        "missing": f"if the folder is right, make it: {command}",
        "empty": f"put a copy of it back, or begin with nothing: {command}",
        "strange": f"see that the folder is right, or have all of it kept aside in a document of ours: {command}",
        "foreign": f"have it taken over, after which uni cannot read it any more: {command}",
    }.get(standing, "")
