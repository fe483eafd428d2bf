"""What the node makes of a bundle, and what it refuses to make."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sdnpu_policy.bundle.manifest import load_bundle
from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.ros.assembly import action_spec

REFERENCE = Path(__file__).resolve().parents[2] / "models" / "reference"


def test_the_reference_policy_is_read_as_its_manifest_says() -> None:
    spec = action_spec(load_bundle(REFERENCE))
    assert (spec.horizon, spec.dim, spec.position) == (16, 9, "relative")


def test_a_policy_whose_poses_are_in_base_link_is_refused_and_never_mirrored() -> None:
    bundle = load_bundle(REFERENCE)
    action = bundle.manifest.action.model_copy(update={"frame": "base_link"})
    turned = replace(bundle, manifest=bundle.manifest.model_copy(update={"action": action}))
    with pytest.raises(SdnpuError, match="base_link"):
        action_spec(turned)
