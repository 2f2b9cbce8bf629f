"""The tables of who may do what: tokens of programs, sessions of people, enrolled VMs."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, Float, Index, Integer, Table, Text

from console.db.tables import metadata

token: Final = Table(
    "token",
    metadata,
    Column("name", Text, primary_key=True),
    Column("hash", Text, nullable=False, unique=True),  # SHA-256; the token is shown once
    Column("role", Text, nullable=False),
    Column("site", Text),  # NULL: every site
    Column("made_by", Text, nullable=False),
    Column("made_at", Float(53), nullable=False),
    Column("ends_at", Float(53), nullable=False),
    Column("revoked_at", Float(53)),
    Column("changed", BigInteger, nullable=False),
)

session: Final = Table(
    "session",
    metadata,
    Column("hash", Text, primary_key=True),  # SHA-256 of the cookie's value
    Column("name", Text, nullable=False),
    Column("groups", Text, nullable=False),  # JSON list
    Column("started_at", Float(53), nullable=False),
    Column("seen_at", Float(53), nullable=False),
    Column("ends_at", Float(53), nullable=False),
    Index("session_ends", "ends_at"),
)

# A login that has succeeded, so that it does so once. One that is under way is known to its browser
# alone: strangers who begin thousands leave no row.
login: Final = Table(
    "login",
    metadata,
    Column("hash", Text, primary_key=True),  # SHA-256 of the cookie's secret
    Column("ends_at", Float(53), nullable=False),
    Index("login_ends", "ends_at"),
)

# Which generation of its derived secrets a VM has; the row "*" is the least one of all VMs. What
# an admin said of it counts for its first contact.
enrolment: Final = Table(
    "enrolment",
    metadata,
    Column("vm_id", Text, primary_key=True),
    Column("generation", Integer, nullable=False),
    Column("revoked_at", Float(53)),
    Column("changed", BigInteger, nullable=False),
    Column("resource_id", Text),
    Column("site", Text),
    Column("enrolled_at", Float(53)),
    # As JSON.
    Column("tags", Text),
    Index("enrolment_changed", "changed"),
)
