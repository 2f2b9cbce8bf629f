"""What the recipes share: when a member is prepared, and when it is brought back."""

import os
import subprocess
from pathlib import Path

import pytest

SHARED = Path(__file__).parent.parent.parent / "deploy" / "recipes" / "recipe.sh"
pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")


class SampleRecipe:
    """A recipe that only writes down what it is asked to do."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._program = directory / "sample.sh"
        steps = ["prepare() { mark; echo prepare; }", "recover() { echo recover; }", f". {SHARED}"]
        self._program.write_text("\n".join(["#!/bin/sh", *steps, ""]))

    def answer_to(self, transition: str, event: str = "A", *, names_it: bool = True) -> str:
        """What it does for a record."""
        facts = {
            "MARKS": str(self._directory / "marks"),
            "SEB_EVENT_ID": event,
            "SEB_EVENT_TRANSITION": transition,
            "SEB_EVENT_IMPACT": "restart",
            "SEB_EVENT_AFFECTS_THIS_VM": str(names_it).lower(),
        }
        env = {"PATH": os.environ["PATH"], **(facts if event else {})}
        done = subprocess.run(
            ["sh", self._program], env=env, check=True, capture_output=True, text=True, timeout=30
        )
        return done.stdout.strip()


@pytest.fixture
def member(tmp_path: Path) -> SampleRecipe:
    """A member that is prepared for no event."""
    return SampleRecipe(tmp_path)


def test_a_member_is_prepared_and_brought_back(member: SampleRecipe) -> None:
    """By the end of the last event that it was prepared for."""
    assert [member.answer_to("scheduled", "A"), member.answer_to("updated", "B")] == [
        "prepare",
        "prepare",
    ]
    assert [member.answer_to("ended", "A"), member.answer_to("ended", "B")] == ["", "recover"]


def test_an_event_that_goes_on_without_the_vm_is_over_for_it(member: SampleRecipe) -> None:
    """The member is brought back, and a later event prepares and recovers as the first did."""
    assert member.answer_to("scheduled") == "prepare"
    assert member.answer_to("updated", names_it=False) == "recover"
    assert member.answer_to("ended", names_it=False) == ""
    assert [member.answer_to("scheduled", "B"), member.answer_to("ended", "B")] == [
        "prepare",
        "recover",
    ]


def test_what_never_named_the_vm_changes_nothing(member: SampleRecipe) -> None:
    """Nor does a record about the bridge itself."""
    assert member.answer_to("scheduled", names_it=False) == ""
    assert member.answer_to("ended", names_it=False) == ""
    assert member.answer_to("", "") == ""
