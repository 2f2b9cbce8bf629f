"""Refused commands: which of them are answered and logged."""

import logging

import pytest
from support.commands.approval_bench import (
    ApprovalBench,
)
from support.documents.documents import EVENT_ID

from bridge.approval import refused_commands


def test_many_refused_tokens_are_not_all_answered(bench: ApprovalBench) -> None:
    """The number of receipts for refused tokens within a minute is limited."""
    bench.announce()
    for number in range(refused_commands.REFUSALS_A_MINUTE + 50):
        bench.send(bench.approve(jti=f"old-{number}", exp=bench.seconds))
    assert len(bench.receipts()) == refused_commands.REFUSALS_A_MINUTE
    bench.clock.advance(60)
    bench.send(bench.approve(jti="old-0", exp=bench.seconds))
    assert len(bench.receipts()) == refused_commands.REFUSALS_A_MINUTE + 1


def test_a_token_that_comes_again_is_refused_once_a_minute(bench: ApprovalBench) -> None:
    """One token that is published again and again causes one receipt a minute for each reason, so
    it does not delay events at a slow sink.
    """
    bench.announce()
    old = bench.approve(jti="old", exp=bench.seconds)
    for _ in range(refused_commands.REFUSALS_A_MINUTE + 1):
        bench.send(old)
    bench.send(bench.approve(jti="other", exp=bench.seconds))
    assert bench.story() == [("rejected", "expired"), ("rejected", "expired")]
    bench.clock.advance(60)
    bench.send(old)
    assert len(bench.receipts()) == 3


def test_refusals_are_logged_within_limits(
    bench: ApprovalBench, caplog: pytest.LogCaptureFixture
) -> None:
    """A flood of one token or of many makes few lines of the log, and no line contains a token."""
    bench.announce()
    token = bench.approve(iss="https://elsewhere.example")
    with caplog.at_level(logging.WARNING):
        for _ in range(refused_commands.REFUSALS_A_MINUTE + 50):
            bench.send(token)
        for number in range(refused_commands.REFUSALS_A_MINUTE + 50):
            bench.send(b"junk %d" % number)
            bench.send(bench.approve(jti=f"other-{number}", iss="https://elsewhere.example"))
    lines = [each for each in caplog.records if getattr(each, "action", "") == "command_refused"]
    assert len(lines) == 2 * refused_commands.REFUSALS_A_MINUTE
    assert not [each for each in lines if token.decode()[-40:] in str(each.__dict__)]


def test_a_flood_without_a_signature_holds_up_no_answer(bench: ApprovalBench) -> None:
    """A flood of unsigned messages does not use up the receipts for signed ones."""
    bench.announce()
    for number in range(refused_commands.REFUSALS_A_MINUTE + 10):
        bench.send(b"junk %d" % number)
    bench.send(bench.approve(exp=bench.seconds))
    assert bench.story() == [("rejected", "expired")]


def test_trouble_with_the_trusted_keys_is_logged_once(
    bench: ApprovalBench, caplog: pytest.LogCaptureFixture
) -> None:
    """A broken trust file is logged once when a command needs it, and once when it can be read
    again.
    """
    assert bench.trust_file is not None
    bench.announce()
    good = bench.trust_file.read_text()
    bench.trust_file.write_text("{")
    with caplog.at_level(logging.WARNING):
        bench.send(bench.approve())
        bench.send(bench.approve())
        bench.trust_file.write_text(good)
        bench.send(bench.approve())
    actions = [getattr(each, "action", "") for each in caplog.records]
    assert [actions.count(each) for each in ("trust_trouble", "trust_ok")] == [1, 1]
    assert bench.refused() == {"unknown_key": 2}
    assert bench.imds.posts == [EVENT_ID]
