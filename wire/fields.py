"""Definitions of objects on the wire: frozen dataclasses whose fields say their type and meaning.

A field is defined once, as `name: Annotated[<type in Python>, Field(<type>, <meaning>)]`. Writing,
strict reading and the JSON Schema follow from that. Names on the wire are in camelCase: `event_id`
is `eventId`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeVar, get_type_hints

from wire.moment import moment_text, rfc3339

MAX_WORD: Final = 300
"""The most characters that a reader accepts in a name, a word or an id: as many as fit in
an index.
"""
MAX_VM_ID: Final = 128
MAX_TEXT: Final = 20_000
"""The most characters that a reader accepts in any other text."""
MAX_ITEMS: Final = 20_000
"""The most items that a reader accepts in a list."""
POSITION_DIGITS: Final = 20
MAX_NUMBER: Final = 2**63 - 1
"""The largest whole number that a reader accepts: the largest of 64 bits."""

_STRING: Final = {"type": "string"}
_NO_VM_ID: Final = re.compile(r"[\s/+#\x00-\x1f]")

T = TypeVar("T")


class FieldError(ValueError):
    """A value is not valid for its field; `path` leads to the field, such as
    `event.eventId`.
    """

    def __init__(self, what: str, *, path: str = "", is_missing: bool = False) -> None:
        super().__init__(f"{path}: {what}" if path else what)
        self.what = what
        self.path = path
        self.is_missing = is_missing

    def with_parent(self, parent: str | int) -> FieldError:
        """Return the same error with the path from the surrounding object or list."""
        path = f"{parent}.{self.path}" if self.path else str(parent)
        return FieldError(self.what, path=path, is_missing=self.is_missing)


@dataclass(frozen=True, slots=True)
class FieldType:
    """The type of a field: its JSON Schema, and how its value is read and written."""

    schema: Mapping[str, Any]
    read: Callable[[Any], Any]
    """Converts JSON to the value. Raises `FieldError`."""
    write: Callable[[Any], Any] = lambda value: value
    """Converts the value to JSON."""
    is_nullable: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an object on the wire."""

    type: FieldType
    doc: str = ""
    """Its meaning: the description in the JSON Schema and in the documentation. An object with a
    definition of its own is described there instead.
    """
    is_optional: bool = False
    """Whether valid objects may lack it. A field whose value is None is left out, unless it may be
    null.
    """
    in_fingerprint: bool = False
    """Whether an approver must have seen its value. New fields stay out of the fingerprint: records
    of older bridges would get another one.
    """
    name: str | None = None
    """Its name on the wire, if that differs from the attribute's name in camelCase."""


class NamedField(NamedTuple):
    """A field with its two names."""

    attribute: str
    wire: str
    field: Field
    has_default: bool


def fields_of(kind: type[Any]) -> tuple[NamedField, ...]:
    """Return the fields of a dataclass that appear on the wire, in their order."""
    if kind not in _FIELDS_OF:
        _FIELDS_OF[kind] = _fields_of(kind)
    return _FIELDS_OF[kind]


def _fields_of(kind: type[Any]) -> tuple[NamedField, ...]:
    hints = get_type_hints(kind, include_extras=True)
    named = []
    for each in fields(kind):
        marks = getattr(hints[each.name], "__metadata__", ())
        field = next((mark for mark in marks if isinstance(mark, Field)), None)
        if field is not None:
            has_default = each.default is not MISSING or each.default_factory is not MISSING
            wire = field.name or _camel_case(each.name)
            named.append(NamedField(each.name, wire, field, has_default))
    return tuple(named)


_FIELDS_OF: Final[dict[type[Any], tuple[NamedField, ...]]] = {}
"""The fields of the classes that `fields_of` was called with before."""


def to_object(value: object) -> dict[str, Any]:
    """Return the JSON object of such a dataclass."""
    written = {}
    for attribute, wire, field, _ in fields_of(type(value)):
        found = getattr(value, attribute)
        if found is not None:
            written[wire] = field.type.write(found)
        elif field.type.is_nullable:
            written[wire] = None
    return written


def read_object(kind: type[T], found: object) -> T:
    """Read such a dataclass strictly from its JSON object. Unknown fields are ignored, and a
    missing nullable field is None. Raises `FieldError`.
    """
    return kind(**read_fields(kind, found))


def read_fields(kind: type, found: object) -> dict[str, Any]:
    """Return the values of such a dataclass by attribute, as `read_object` reads them."""
    if not isinstance(found, Mapping):
        raise FieldError("this is not an object")
    values = {}
    for attribute, wire, field, has_default in fields_of(kind):
        if wire in found:
            try:
                values[attribute] = field.type.read(found[wire])
            except FieldError as error:
                raise error.with_parent(wire) from None
        elif field.type.is_nullable and not has_default:
            values[attribute] = None
        elif not has_default:
            raise FieldError("it is missing", path=wire, is_missing=True)
    return values


def object_schema(kind: type, doc: str | None = None) -> dict[str, Any]:
    """Return the JSON Schema of such a dataclass."""
    named = fields_of(kind)
    schema = {
        "type": "object",
        "description": doc,
        "additionalProperties": False,
        "required": [each.wire for each in named if not each.field.is_optional],
        "properties": {each.wire: _described(each.field) for each in named},
    }
    return {name: value for name, value in schema.items() if value is not None}


def _described(field: Field) -> dict[str, Any]:
    return {**({"description": field.doc} if field.doc else {}), **field.type.schema}


def _camel_case(attribute: str) -> str:
    first, *others = attribute.split("_")
    return first + "".join(each.capitalize() for each in others)


def _text(*, least: int = 0, most: int = MAX_TEXT) -> FieldType:
    def read(value: Any) -> str:
        if not isinstance(value, str):
            raise FieldError("this is not a text")
        if not least <= len(value) <= most:
            raise FieldError(f"a text of {len(value)} characters; it has {least} to {most}")
        return value

    return FieldType(_STRING, read)


def _moment(write: Callable[[datetime], str | None]) -> FieldType:
    def read(value: Any) -> datetime:
        try:
            moment = datetime.fromisoformat(value)
            in_utc = moment.astimezone(UTC)
        except (ValueError, TypeError, OverflowError):
            raise FieldError("this is not a moment of RFC 3339") from None
        if moment.tzinfo is None:
            raise FieldError("this moment has no zone")
        return in_utc

    return FieldType({"type": "string", "format": "date-time"}, read, write)


def whole_number(*, least: int | None = None) -> FieldType:
    """Return the type of a whole number from `least` to 64 bits."""
    low = -MAX_NUMBER if least is None else least

    def read(value: Any) -> int:
        if type(value) is not int:
            raise FieldError("this is not a whole number")
        if not low <= value <= MAX_NUMBER:
            raise FieldError(f"this number is not between {low} and {MAX_NUMBER}")
        return value

    return FieldType({"type": "integer"} | ({} if least is None else {"minimum": least}), read)


def number(*, least: int | None = None) -> FieldType:
    """Return the type of a number of at least `least`."""

    def read(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise FieldError("this is not a number")
        if not -MAX_NUMBER <= value <= MAX_NUMBER or (least is not None and value < least):
            raise FieldError("a number out of range")
        return value

    return FieldType({"type": "number"} | ({} if least is None else {"minimum": least}), read)


def one_of(*words: str | None) -> FieldType:
    """Return the type of one of these words; None stands for null."""

    def read(value: Any) -> str | None:
        if not (value is None or isinstance(value, str)) or value not in words:
            raise FieldError(f"this is not one of {', '.join(str(word) for word in words)}")
        return value

    return FieldType({"enum": list(words)}, read, is_nullable=None in words)


def word_of(*words: str | None) -> FieldType:
    """Return the type of one of these words, where None stands for null; a reader also accepts
    other words, as newer bridges may send.
    """
    read = or_null(WORD).read if None in words else WORD.read
    return FieldType({"enum": list(words)}, read, is_nullable=None in words)


def list_of(field_type: FieldType, *, least: int = 0, most: int = MAX_ITEMS) -> FieldType:
    """Return the type of a list; its value is a tuple."""

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise FieldError("this is not a list")
        if not least <= len(value) <= most:
            raise FieldError(f"a list of {len(value)}; it has {least} to {most}")
        items = []
        for index, each in enumerate(value):
            try:
                items.append(field_type.read(each))
            except FieldError as error:
                raise error.with_parent(index) from None
        return tuple(items)

    schema = {"type": "array", "items": field_type.schema} | ({"minItems": least} if least else {})
    return FieldType(schema, read, lambda value: [field_type.write(each) for each in value])


def object_of(kind: type, *, ref: str | None = None, is_nullable: bool = False) -> FieldType:
    """Return the type of an object of such a dataclass; with `ref`, its schema has that name in
    `$defs`.
    """
    schema = {"$ref": f"#/$defs/{ref}"} if ref else object_schema(kind)
    found = FieldType(schema, lambda value: read_object(kind, value), to_object)
    return or_null(found) if is_nullable else found


def or_null(field_type: FieldType) -> FieldType:
    """Return the same type, or null for None."""
    schema = dict(field_type.schema)
    if "type" in schema:
        schema["type"] = [schema["type"], "null"]
    return FieldType(
        schema,
        lambda value: None if value is None else field_type.read(value),
        lambda value: None if value is None else field_type.write(value),
        is_nullable=True,
    )


def _vm_id(value: Any) -> str:
    text: str = WORD.read(value)
    if _NO_VM_ID.search(text) or len(text) > MAX_VM_ID:
        raise FieldError("this cannot be a vmId, which is part of topics")
    return text


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise FieldError("this is not true or false")
    return value


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise FieldError("this is not an object")
    return value


def _texts(value: Any) -> Mapping[str, str]:
    if not all(isinstance(each, str) for each in _object(value).values()):
        raise FieldError("this is not an object of texts")
    return dict(value)


def _position(value: Any) -> int:
    if (
        not isinstance(value, str)
        or len(value) != POSITION_DIGITS
        or not (value.isascii() and value.isdigit())
    ):
        raise FieldError("this is not a number of 20 digits")
    if int(value) > MAX_NUMBER:
        raise FieldError("a number out of range")
    return int(value)


TEXT: Final = _text()
WORD: Final = _text(least=1, most=MAX_WORD)
"""A name, a word or an id."""
ID: Final = FieldType({**_STRING, "minLength": 1}, WORD.read)
"""A `WORD`; its JSON Schema says too that it is not empty."""
VM_ID: Final = FieldType(_STRING, _vm_id)
CLAIM: Final = _text(least=1, most=600)
"""A claim of a token: a bridge accepts texts of up to 512 characters, and puts a word in front of
some.
"""
TIME: Final = _moment(rfc3339)
"""A moment in UTC, written with milliseconds."""
MOMENT: Final = _moment(moment_text)
"""A moment in UTC, written with a fraction only where there is one."""
BOOLEAN: Final = FieldType({"type": "boolean"}, _boolean)
OBJECT: Final = FieldType({"type": "object"}, _object, dict)
TEXTS: Final = FieldType(
    {"type": "object", "additionalProperties": {"type": "string"}}, _texts, dict
)
FINGERPRINT: Final = FieldType({**_STRING, "pattern": "^sha256:[0-9a-f]{64}$"}, WORD.read)
POSITION: Final = FieldType(
    {"type": "string", "pattern": "^[0-9]{20}$"}, _position, lambda value: f"{value:020d}"
)
"""A place in a stream of records: a number that is written with 20 digits."""
