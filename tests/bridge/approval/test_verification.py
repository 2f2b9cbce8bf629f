"""The checks of a signed command: each forgery is refused, with its reason."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.commands.approval_bench import ApprovalBench, populate, scene
from support.commands.control_plane import IssuerKey, joined, split
from support.commands.forged_claims import FORGERIES
from support.commands.forged_tokens import CURVE_ORDER
from support.commands.forgery import ForgerTools, Forgery
from support.documents.documents import VM, FakeClock

from bridge.approval.trusted_keys import Trust
from bridge.approval.verification import (
    MAX_COMMANDS,
    RATE_SECONDS,
    CommandRefusedError,
    LocalState,
    RateLimit,
    SignedCommand,
    verify,
)
from wire.command import MAX_TOKEN_BYTES


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApprovalBench]:
    """A bridge that has seen events of every kind; no test changes it."""
    made = ApprovalBench(tmp_path_factory.mktemp("bench"))
    populate(made)
    yield made
    made.close()


def judge(
    bench: ApprovalBench,
    token: bytes,
    *used: str,
    retained: bool = False,
    rate: RateLimit | None = None,
    later: float = 0.0,
) -> SignedCommand:
    """Verify the command so many seconds later; these jti are used."""
    local = LocalState(
        vm_id=VM.vm_id,
        now=bench.clock.now() + timedelta(seconds=later),
        events=bench.current.events,
        used=lambda command: command.jti in used,
        time_of=lambda _: bench.clock.now(),
    )
    return verify(
        token,
        retained=retained,
        trust=Trust(bench.trust_file),
        local=local,
        rate=rate or RateLimit(MAX_COMMANDS, FakeClock().monotonic),
    )


def refusal(bench: ApprovalBench, token: bytes, *used: str, **how: Any) -> CommandRefusedError:
    """Return why a command is refused."""
    with pytest.raises(CommandRefusedError) as caught:
        judge(bench, token, *used, **how)
    return caught.value


def spent() -> RateLimit:
    """Return a rate that allows nothing more."""
    rate = RateLimit(1, FakeClock().monotonic)
    assert rate.allows()
    return rate


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery.name)
def test_a_forgery_is_refused_for_its_one_reason(bench: ApprovalBench, forgery: Forgery) -> None:
    """Each forged, stale or misdirected command is refused with its own reason."""
    refused = refusal(bench, forgery.make(scene(bench)), retained=forgery.retained)
    assert forgery.reason == refused.reason
    assert forgery.answered == (refused.command is not None)


def test_there_are_many_forgeries() -> None:
    """The table of forgeries has its full length and no duplicate."""
    assert len(FORGERIES) == len({forgery.name for forgery in FORGERIES})
    assert len(FORGERIES) > 200


def test_a_good_command_is_what_its_claims_say(bench: ApprovalBench) -> None:
    """A valid approval is returned with its claims and the issuer of its key."""
    at = scene(bench)
    event = at.soon["data"]
    key = Trust(bench.trust_file).find(at.signer.kid)
    assert key is not None
    expected = SignedCommand(
        issuer=at.signer.issuer,
        subject="operator@control.example",
        jti="one",
        act="approve",
        event_id=event["event"]["eventId"],
        fingerprint=event["fingerprint"],
        person_reason="drained",
        issued=at.now,
        expires=at.now + 300,
        key=key.digest,
    )
    assert expected == judge(bench, at.approve(jti="one", rsn="drained"))


def test_an_event_id_has_no_case(bench: ApprovalBench) -> None:
    """An EventId is compared without regard to case, which differs between ARM and IMDS."""
    assert judge(bench, scene(bench).approve(evt="e-soon")).event_id == "e-soon"


def test_a_ping_needs_no_event(bench: ApprovalBench) -> None:
    """A ping is valid without an event, or with null."""
    at = scene(bench)
    ping = at.signer.ping(VM.vm_id, iat=at.now, nbf=at.now, exp=at.now + 9, evt=None)
    command = judge(bench, ping)
    assert (command.act, command.event_id, command.fingerprint) == ("ping", None, None)


def test_unknown_claims_are_ignored(bench: ApprovalBench) -> None:
    """Unknown claims are ignored, and a null reason counts as none."""
    assert judge(bench, scene(bench).approve(azp="x", rsn=None)).person_reason is None


@pytest.mark.parametrize(
    ("times", "good"),
    [
        ({"exp": 900}, True),
        ({"iat": -300, "nbf": -300, "exp": 600}, True),
        ({"iat": 5, "nbf": 5}, True),
        ({"iat": 6}, False),
        ({"nbf": 6}, False),
        ({"exp": 1}, True),
        ({"exp": 0}, False),
        ({"iat": -1, "exp": 900}, False),
    ],
)
def test_times_have_sharp_edges(bench: ApprovalBench, times: dict[str, int], *, good: bool) -> None:
    """A token may be issued at most 5 s in the future and live at most 900 s."""
    at = scene(bench)
    token = at.approve(**{name: at.now + seconds for name, seconds in times.items()})
    if good:
        assert judge(bench, token).act == "approve"
    else:
        assert refusal(bench, token).reason in ("expired", "not_yet_valid", "lifetime_too_long")


def test_time_passes_over_a_token(bench: ApprovalBench) -> None:
    """A token is valid until its last second."""
    token = scene(bench).approve()
    assert judge(bench, token, later=299.999)
    assert refusal(bench, token, later=300.0).reason == "expired"


def test_the_largest_token_is_good(bench: ApprovalBench) -> None:
    """A token of exactly 8 KiB, with a reason of 512 characters, is valid."""
    at = scene(bench)
    tokens = (at.approve(rsn="x" * 512, fill="x" * fill) for fill in range(5000, 5700))
    token = next(each for each in tokens if len(each) >= MAX_TOKEN_BYTES)
    assert len(token) == MAX_TOKEN_BYTES
    assert judge(bench, token).person_reason == "x" * 512


def test_a_signature_in_its_other_form_is_the_same_command(bench: ApprovalBench) -> None:
    """An ES256 signature in its second form is the same command, because the jti is used up and not
    the bytes.
    """
    at = scene(bench)
    token = at.curve.approve(at.soon, now=at.now, jti="twin")
    header, claims, signature = split(token)
    s = CURVE_ORDER - int.from_bytes(signature[32:])
    twin = joined(header, claims, signature[:32] + s.to_bytes(32))
    assert judge(bench, token) == judge(bench, twin)
    assert refusal(bench, twin, "twin").reason == "replayed"


Wrong = Callable[[ForgerTools], bytes]
ORDER: list[tuple[str, Wrong, dict[str, Any]]] = [
    ("too_large", lambda s: b"A" * 9000, {"retained": True}),
    ("retained", lambda s: b"no token", {"retained": True}),
    ("malformed", lambda s: s.headed(typ="JWT", kid="key-9"), {}),
    ("malformed", lambda s: s.headed(kid="key-9") + b".AA", {}),
    ("unknown_key", lambda s: IssuerKey("key-9").approve(s.soon, now=s.now), {}),
    ("bad_signature", lambda s: IssuerKey("key-1").token(b"[]"), {}),
    (
        "bad_signature",
        lambda s: IssuerKey("key-1").approve(s.soon, now=s.now, iss="x", exp="x"),
        {},
    ),
    ("malformed", lambda s: s.approve(iat=None, iss="x", aud="x"), {}),
    ("not_allowed", lambda s: s.approve(iss="x", aud="x"), {}),
    ("wrong_audience", lambda s: s.approve(aud="x", iat=1, nbf=1, exp=2), {}),
    ("expired", lambda s: s.approve(iat=1, nbf=s.now + 60, exp=2), {}),
    ("not_yet_valid", lambda s: s.approve(nbf=s.now + 60, exp=s.now + 9999), {}),
    ("lifetime_too_long", lambda s: s.approve(exp=s.now + 9999, act="reboot"), {}),
    ("not_allowed", lambda s: s.approve(act="reboot", jti="used"), {}),
    ("not_allowed", lambda s: s.signer.approve(s.others, now=s.now, jti="used"), {}),
    ("replayed", lambda s: s.approve(evt="E-NEVER", jti="used"), {}),
    ("unknown_event", lambda s: s.approve(evt="E-NEVER", evh="x"), {"rate": spent()}),
    ("already_started", lambda s: s.signer.approve(s.begun, now=s.now, evh="x"), {}),
    ("event_changed", lambda s: s.approve(evh="x"), {"rate": spent()}),
    ("rate_limited", lambda s: s.approve(), {"rate": spent()}),
]


@pytest.mark.parametrize(
    ("reason", "make", "how"), ORDER, ids=[f"{n}-{each[0]}" for n, each in enumerate(ORDER)]
)
def test_of_two_faults_the_earlier_one_is_the_reason(
    bench: ApprovalBench, reason: str, make: Wrong, how: dict[str, Any]
) -> None:
    """The checks have a fixed order, so that a command with two faults has one reason."""
    assert reason == refusal(bench, make(scene(bench)), "used", **how).reason


def test_a_refusal_names_the_issuer_of_the_key(bench: ApprovalBench) -> None:
    """A refusal names the key's issuer, whatever the token claims."""
    at = scene(bench)
    command = refusal(bench, at.other.approve(at.soon, now=at.now, iss=at.signer.issuer)).command
    assert command is not None
    assert at.other.issuer == command.issuer


def test_what_cannot_be_read_is_not_in_a_refusal(bench: ApprovalBench) -> None:
    """The refusal of a malformed command has only values that may be in a receipt."""
    at = scene(bench)
    command = refusal(bench, at.approve(sub="x\nroot", jti=7, evt="\ud800", iat=True)).command
    assert command is not None
    assert (command.subject, command.jti) == ("", "")
    assert (command.event_id, command.issued) == (None, 0)


@settings(deadline=None)
@given(place=st.integers(min_value=0), bit=st.integers(min_value=0, max_value=7))
@example(place=-1, bit=0)
@example(place=-1, bit=1)
def test_no_bit_of_a_token_can_be_flipped(bench: ApprovalBench, place: int, bit: int) -> None:
    """A token with any bit flipped is refused."""
    token = bytearray(scene(bench).approve(jti="flip"))
    token[place % len(token)] ^= 1 << bit
    assert refusal(bench, bytes(token)).reason in ("malformed", "unknown_key", "bad_signature")


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_whatever_comes_is_refused_with_a_reason(bench: ApprovalBench, noise: bytes) -> None:
    """Any bytes are refused with a reason."""
    assert refusal(bench, noise).reason == "malformed"
    assert refusal(bench, scene(bench).signer.token(noise)).reason == "malformed"


def test_a_rate_is_so_many_a_minute() -> None:
    """The limit holds in any minute, and commands are accepted again after it."""
    clock = FakeClock()
    rate = RateLimit(2, clock.monotonic)
    assert [rate.allows() for _ in range(3)] == [True, True, False]
    clock.advance(RATE_SECONDS - 0.001)
    assert not rate.allows()
    clock.advance(0.001)
    assert [rate.allows() for _ in range(3)] == [True, True, False]


def test_a_wall_clock_that_jumps_changes_no_rate() -> None:
    """A change of the wall clock neither blocks commands nor lets more through."""
    clock = FakeClock()
    rate = RateLimit(2, clock.monotonic)
    allowed = 0
    for hours in (-1, 1, -1, 1):
        clock.jump(hours * 3600)
        allowed += sum(rate.allows() for _ in range(5))
    assert allowed == 2
    clock.advance(RATE_SECONDS)
    assert rate.allows()
