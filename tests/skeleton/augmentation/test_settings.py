"""Settings that make no sense are refused in words; those that do can be written to a file."""

from __future__ import annotations

import doctest
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.skeleton.augmentation.literal import ALL, CPU, TORSO
from trellis.errors import TrellisError
from trellis.skeleton import Augmentation, Augmenter
from trellis.skeleton.data.layouts import FPHA, LAYOUTS


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"rotation": 20}, r"rotation=20 is not three numbers of degrees"),
        ({"rotation": (1, 2)}, r"rotation=\(1, 2\) is not three"),
        ({"rotation": (1, -2, 3)}, r"about the y axis it is -2"),
        ({"rotation": (1, 2, 181)}, r"about the z axis it is 181"),
        ({"rotation": (True, 2, 3)}, r"about the x axis it is True"),
        ({"scale": 1.0}, r"scale=1.0 is not a number from 0 to below 1"),
        ({"scale": "big"}, r"scale='big' is not"),
        ({"warp": -0.1}, r"warp=-0.1 is not"),
        ({"warp": math.nan}, r"warp=nan is not"),
        ({"crop": 0}, r"crop=0 is not a share of the recording"),
        ({"crop": 1.1}, r"crop=1.1 is not a share"),
        ({"noise": math.inf}, r"noise=inf is not a finite number"),
        ({"mirror": 1.5}, r"mirror=1.5 is not a probability"),
        ({"left_right": 3}, r"left_right=3 is not an axis"),
        ({"left_right": True}, r"left_right=True is not an axis"),
    ],
)
def test_settings_that_are_none(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(TrellisError, match=said):
        Augmentation(**wrong)


def test_a_hand_has_no_mirror_image() -> None:
    with pytest.raises(TrellisError, match=r"mirror=0.5 and layout 'fpha' defines no mirror: set"):
        Augmenter([0], Augmentation(mirror=0.5), FPHA, 32, CPU)


def test_a_mirror_that_does_not_lead_back() -> None:
    with pytest.raises(TrellisError, match="joint 0 becomes 1, which becomes 2"):
        replace(TORSO, mirror=(1, 2, 3, 0))


def test_every_known_mirror_leads_back() -> None:
    for layout in LAYOUTS.values():
        if layout.mirror is not None:
            Augmentation(mirror=0.5).check(layout)


def test_settings_go_through_json() -> None:
    assert Augmentation(**json.loads(json.dumps(ALL.to_dict()))) == ALL


def test_the_page_about_it_is_right() -> None:
    page = Path(__file__).parents[3] / "docs" / "augmentation.md"
    assert doctest.testfile(str(page), module_relative=False).failed == 0
