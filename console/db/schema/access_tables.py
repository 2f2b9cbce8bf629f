"""The tables of access: tokens of programs, sessions of people, and enrolled VMs."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, Float, Index, Integer, Table, Text

from console.db.schema.tables import metadata

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
    Column("change_number", BigInteger, nullable=False),
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

# Logins that have succeeded, so that none succeeds twice. A login that is under way is stored in
# its browser only: strangers who begin thousands leave no row.
login: Final = Table(
    "login",
    metadata,
    Column("hash", Text, primary_key=True),  # SHA-256 of the cookie's secret
    Column("ends_at", Float(53), nullable=False),
    Index("login_ends", "ends_at"),
)

# Which generation of its derived secrets a VM has; the row "*" has the least one of all VMs. What
# an admin gave with the enrolment (resource id, site, tags) is used when the VM is first heard.
enrolment: Final = Table(
    "enrolment",
    metadata,
    Column("vm_id", Text, primary_key=True),
    Column("generation", Integer, nullable=False),
    Column("revoked_at", Float(53)),
    Column("change_number", BigInteger, nullable=False),
    Column("resource_id", Text),
    Column("site", Text),
    Column("enrolled_at", Float(53)),
    # As JSON.
    Column("tags", Text),
    Index("enrolment_changed", "change_number"),
)
