"""JSON that is read and written strictly."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wire.strictjson import JsonError, load_json, same_json

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
JSON = st.recursive(
    SCALARS.filter(lambda value: value not in (float("inf"), -float("inf"))),
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (b'\xef\xbb\xbf{"EventId":"bom"}', "bom"),
        (b'{"EventId":"half \\ud83d"}', "half �"),
        (b'{"EventId":"\\udc00\\ud83dx"}', "��x"),
        (b'{"EventId":"whole \\ud83d\\ude00"}', "whole 😀"),
        (b'{"EventId":"C:\\\\users\\\\ud83d"}', "C:\\users\\ud83d"),
        (b'{"EventId":"nul \\u0000"}', "nul \0"),
        ('{"EventId":"é\u2028"}'.encode(), "é\u2028"),
    ],
)
def test_odd_text_is_kept_or_replaced(document: bytes, expected: str) -> None:
    """A byte order mark is skipped, and half a surrogate pair becomes U+FFFD."""
    assert {"EventId": expected} == load_json(document)


@settings(deadline=None)
@given(JSON)
def test_plain_json_is_read(value: object) -> None:
    """Strict reading accepts all JSON that ordinary writers produce."""
    assert value == load_json(json.dumps(value).encode())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b" ", "the answer is empty"),
        (b"\xff", "the answer is not UTF-8"),
        (b'"\xed\xa0\x80"', "the answer is not UTF-8"),
        (b"[NaN]", "NaN is not JSON"),
        (b"[-Infinity]", "-Infinity is not JSON"),
        (b"[1e400]", "a number is too large"),
        (b"9" * 5000, "a number is too large"),
        (b'{"a":1,"a":1}', "an object has the same key twice"),
        (b'{"\\ud800":1,"\\udbff":1}', "an object has the same key twice"),
        (b"[" * 100 + b"]" * 100, "the JSON is nested too deeply"),
        (b"[" * 100_000, "the JSON is nested too deeply"),
    ],
)
def test_an_error_says_what_is_wrong(text: bytes, expected: str) -> None:
    """The message of an error says what is wrong, and repeats nothing of the text."""
    with pytest.raises(JsonError) as caught:
        load_json(text)
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (False, False, True),
        ({"a": 1, "b": [0, None]}, {"b": [0.0, None], "a": 1}, True),
        ({"a": [0]}, {"a": [False]}, False),
        ({"a": {"b": True}}, {"a": {"b": 1}}, False),
        ({"a": 1}, {"b": 1}, False),
        ([1], [1, 1], False),
        ([], {}, False),
    ],
)
def test_true_is_not_1(one: object, other: object, *, expected: bool) -> None:
    """`same_json` distinguishes 1 from true, although they are equal in Python."""
    assert (expected, expected) == (same_json(one, other), same_json(other, one))
