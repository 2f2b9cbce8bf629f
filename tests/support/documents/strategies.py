"""Documents, made up by hypothesis: sane, odd, and none at all; each field raw beside read."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from hypothesis import strategies as st
from support.documents.shapes import MISSING, VM_NAME, Entry, Spelling, Written, clean

from bridge.imds.client import ImdsError

EVENT_IDS: Final = ("AAA-1", "BBB-2", "Ünï ✓ 3")

_TEXT: Final = st.text(max_size=12) | st.sampled_from(
    ["", " ", "\0", "\u202ex", "</script>", "'; --", "😀" * 50, "x" * 5000, "half \ud83d", "\udc00"]
)
_NUMBERS: Final = st.sampled_from([0, 1, -1, 9, 1.5, 10**30, -(2**63), 1e300, -0.0, 1.0])
_LEAVES: Final = st.none() | st.booleans() | _NUMBERS | _TEXT
JSON: Final = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=6).filter(str.isprintable), inner, max_size=3)
    ),
    max_leaves=6,
)
_ODD: Final = JSON.filter(lambda value: not isinstance(value, str))


def _same(raw: Any) -> Spelling:
    return Spelling(raw, clean(raw))


def _unreadable(raw: Any) -> Spelling:
    return Spelling(raw, None)


def _number(raw: Any) -> Spelling:
    """A duration: a whole number that is not negative, however it is written."""
    whole = not isinstance(raw, bool) and isinstance(raw, (int, float)) and raw % 1 == 0
    return Spelling(raw, int(raw) if whole and 0 <= raw < 2**63 else None)


def _names(raw: Any) -> Spelling:
    """Resources: text counts, whether alone or in a list, without the first underscore."""
    texts = [each for each in (raw if isinstance(raw, list) else [raw]) if isinstance(each, str)]
    plain = [clean(each.removeprefix("_")) for each in texts]
    return Spelling(raw, [each for each in plain if each])


def _rfc_1123(moment: datetime, weekday: str, zone: str, *, lower: bool, zero: bool) -> Spelling:
    day = f"{moment.day:02}" if zero else str(moment.day)
    text = f"{weekday}{day} {moment:%b %Y %H:%M:%S}{zone}"
    shift = _shift(zone.strip()) if zone.strip()[:1] in ("+", "-") else timedelta(0)
    return Spelling(text.lower() if lower else text, _written(moment - shift))


def _iso_8601(moment: datetime, between: str, zone: str, micros: int | None) -> Spelling:
    text = f"{moment:%Y-%m-%d}{between}{moment:%H:%M:%S}"
    if micros is not None:
        text += f".{micros:06}"
    shift = _shift(zone) if zone[:1] in ("+", "-") else timedelta(0)
    return Spelling(text + zone, _written(moment - shift, micros or 0))


def _shift(zone: str) -> timedelta:
    sign, digits = zone[0], zone[1:].replace(":", "")
    shift = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -shift if sign == "-" else shift


def _written(moment: datetime, micros: int = 0) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S}" + (f".{micros:06}" if micros else "") + "Z"


MOMENTS: Final = st.integers(1_420_000_000, 2_840_000_000).map(
    lambda seconds: datetime.fromtimestamp(seconds, UTC)
)
_DATES: Final = st.one_of(
    st.builds(
        _rfc_1123,
        MOMENTS,
        st.sampled_from(["Mon, ", "Sun, ", "", "Foo,"]),
        st.sampled_from([" GMT", " UTC", "", " +0000", " -0530"]),
        lower=st.booleans(),
        zero=st.booleans(),
    ),
    st.builds(
        _iso_8601,
        MOMENTS,
        st.sampled_from(["T", " ", "t"]),
        st.sampled_from(["Z", "z", "", "+00:00", "-07:00", "+0530"]),
        st.none() | st.integers(0, 999_999),
    ),
    st.sampled_from(["", " ", "soon", "Mon, 30 Feb 2026 10:00:00 GMT", "2026-13-01T00:00:00Z"]).map(
        _unreadable
    ),
    st.sampled_from(["Mon, 02 Mar 2026 10:15:00 PST", "10:15", "2026-03-02", "٢٠٢٦"]).map(
        _unreadable
    ),
    (_ODD | st.just(MISSING)).map(_unreadable),
)
_WORDS: Final = ("Scheduled", "Started", "Completed", "Canceled")
_CASES: Final = (str, str.upper, str.lower, lambda word: f" {word}\t")
_STATUSES: Final = st.one_of(
    st.sampled_from(_WORDS[:2]).map(_same),
    st.builds(
        lambda word, case: Spelling(case(word), word),
        st.sampled_from(_WORDS),
        st.sampled_from(_CASES),
    ),
    st.sampled_from(["Napping", "Sch eduled", "Startéd"]).map(_same),
    (st.just("") | _ODD | st.just(MISSING)).map(lambda raw: Spelling(raw, "Unknown")),
)
_TEXTS: Final = _TEXT.map(_same) | (_ODD | st.just(MISSING)).map(_unreadable)
_TYPES: Final = st.sampled_from(["Freeze", "REBOOT", "redeploy", "Preempt", "Terminate"]).map(_same)
_DURATIONS: Final = st.one_of(
    st.integers(-2, 10_000).map(_number), _NUMBERS.map(_number), (_ODD | _TEXT).map(_number)
)
_MACHINES: Final = st.sampled_from([VM_NAME, "WEB_3", "_web_3", "web_33", "web_4", "", "_", "vm ü"])
_RESOURCES: Final = st.one_of(
    st.lists(_MACHINES, max_size=4).map(_names),
    st.lists(_MACHINES | _LEAVES, max_size=4).map(_names),
    st.lists(st.integers(0, 10**6).map(lambda n: f"vm_{n}"), min_size=100, max_size=200).map(
        _names
    ),
    (_MACHINES | _ODD | st.just(MISSING)).map(_names),
)
_EXTRA: Final = st.dictionaries(
    st.sampled_from(["Novelty", "eventid", "EventID", "", "eventstatus", "__proto__", "x" * 300]),
    JSON,
    max_size=2,
)
ENTRIES: Final = st.builds(
    Entry,
    st.fixed_dictionaries(
        {
            "EventType": _TYPES | _TEXTS,
            "ResourceType": st.just(_same("VirtualMachine")) | _TEXTS,
            "Resources": _RESOURCES,
            "EventStatus": _STATUSES,
            "NotBefore": _DATES,
            "Description": _TEXTS,
            "EventSource": st.just(_same("Platform")) | _TEXTS,
            "DurationInSeconds": _DURATIONS | st.just(_number(MISSING)),
        }
    ),
    _EXTRA,
)

# Documents.

NAMELESS: Final[st.SearchStrategy[object]] = st.sampled_from(
    [None, 7, "AAA-1", [], {}, {"EventId": None}, {"EventId": "  "}, {"eventid": "AAA-1"}]
)
"""Entries that might be any event: while one is there, absence proves nothing."""
WRITTEN: Final = st.builds(
    Written,
    incarnation=st.integers(0, 5)
    | st.sampled_from([279, -1, "7", 2.0, 10**30])
    | _LEAVES
    | st.just(MISSING),
    extra=st.dictionaries(
        st.sampled_from(["Extra", "events", "DocumentIncarnation2"]), JSON, max_size=1
    ),
    indent=st.sampled_from([None, None, 1]),
    ascii=st.booleans(),
    mark=st.sampled_from([False, False, True]),
    backwards=st.booleans(),
)


ERRORS: Final = st.sampled_from(["timeout", "refused", "http_404", "http_429", "http_500"]).map(
    lambda reason: ImdsError(f"no: {reason}", reason=reason)
)
BAD_BODIES: Final = st.one_of(
    st.sampled_from(
        [
            *(b"", b"null", b"[]", b"{}", b"<html></html>", b'{"Events":null}', b'{"events":[]}'),
            b'{"error":"Bad request","newest-versions":["2020-07-01"]}',
            b'{"Events":[{"EventId":"AAA-1","EventStatus":"Started","EventStatus":"Scheduled"}]}',
            *(b'{"Events":[NaN]}', b'{"Events":[1e999]}', b'{"Events":[]}{"Events":[]}'),
            *(b'{"Events":["\xff"]}', b'{"Events":' + b"[" * 100_000),
        ]
    ),
    st.binary(max_size=40),
    # Half a document is none: of an object, no beginning is whole.
    st.builds(
        lambda written, entry, part: (body := written.body([entry.raw("AAA-1")]))[
            : int(len(body) * part)
        ],
        WRITTEN,
        ENTRIES,
        st.floats(0, 0.999),
    ),
)
"""What a 200 can hold that is no document."""


def spelt(event_id: str, spelling: int) -> str:
    """The same id as another of Azure's services writes it."""
    return (event_id, event_id.lower(), event_id.upper())[spelling % 3]
