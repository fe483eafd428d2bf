"""Where the files that come with the package are: launch files, parameter files, the reference policy.

colcon and pip install them under ``share/sdnpu_policy``; an editable install leaves them in the source tree.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sdnpu_policy.errors import SdnpuError

_PACKAGE = "sdnpu_policy"


def share_path(relative: str) -> Path:
    """The path of a shipped file or directory, such as ``config/policy.yaml``.

    Raises:
        SdnpuError: it is in none of the places it could be.
    """
    source = Path(__file__).resolve().parents[1]
    prefixes = [Path(p) for p in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if p]
    places = [source] if (source / "package.xml").is_file() else []
    places += [prefix / "share" / _PACKAGE for prefix in (*prefixes, Path(sys.prefix))]
    for place in places:
        if (place / relative).exists():
            return place / relative
    looked = ", ".join(str(place) for place in places)
    raise SdnpuError(f"{relative} is not installed: looked in {looked}; install the package again")


def policy_path(name: str) -> Path:
    """The directory of a policy bundle: ``reference`` for the shipped one, else the path that was given."""
    return share_path("models/reference") if name == "reference" else Path(name).expanduser()
