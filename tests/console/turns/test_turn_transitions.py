"""The table of a turn's states."""

from __future__ import annotations

from console.turns.transitions import HOLDING, TABLE, TurnCondition, next_step, printed


def test_every_state_leads_to_over() -> None:
    """From every state a turn can end."""
    for state in TABLE:
        reached, todo = {state}, [state]
        while todo:
            found = set(TABLE[todo.pop()].values()) - reached
            reached |= found
            todo += found
        assert "over" in reached


def test_a_person_can_end_every_turn_that_is_held() -> None:
    """A person can end a turn in each state in which it is held."""
    assert {next_step(state, TurnCondition.ENDED_BY_PERSON) for state in HOLDING} == {"over"}


def test_what_does_not_fit_the_state_changes_nothing() -> None:
    """A condition that is met again or late changes nothing."""
    assert next_step("over", TurnCondition.STARTED) == "over"
    assert next_step("waiting", TurnCondition.ALL_BACK) == "waiting"


def test_an_approval_is_sent_for_what_is_prepared_or_has_failed() -> None:
    """An approval is sent for a turn that is prepared, or that has failed; for the latter only a
    person does it.
    """
    ways = [
        (state, condition)
        for state, row in TABLE.items()
        for condition, then in row.items()
        if then == "approving"
    ]
    assert ways == [("prepared", TurnCondition.APPROVED), ("failed", TurnCondition.APPROVED)]


def test_the_table_can_be_printed() -> None:
    """The printed table has the rows that the console follows."""
    assert ("prepared", "the approval is sent", "approving") in printed()
