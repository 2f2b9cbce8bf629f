"""Connections to PostgreSQL with a limit for every wait: for an answer, and for a lock that a
console which hangs still holds.

TCP timeouts do not help if a proxy or a firewall acknowledges data that it does not pass on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL

V = TypeVar("V")
_INTERVAL_SECONDS: Final = 0.1
_TCP_USER_TIMEOUT_SINCE: Final = 120_000
"""The first version of PostgreSQL that has this setting, in libpq's form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The limits of waits, in seconds."""

    connect: int = 4
    answer: float = 8.0
    """From a statement to its answer, measured by the console."""
    ping: float = 2.0
    """The limit of the check of an unused connection. After the server was silent no connection
    works, and each request for one waits this long.
    """
    statement: float = 7.0
    """From a statement to its answer, measured by the server."""
    lock: float = 4.0
    idle: float = 7.0
    """From one statement of a transaction to the next. After that the server ends the
    transaction.
    """
    pool: float = 5.0
    """The wait for a connection while all are in use."""


class PatientConnection(psycopg.Connection[Any]):
    """A connection that closes if the server does not answer."""

    patience: float | None = None
    """How many seconds an answer may take; None: no limit."""

    def wait(
        self, gen: PQGen[V], interval: float = _INTERVAL_SECONDS, timeout: float | None = None
    ) -> V:
        """Wait for the server; every statement, commit and rollback does so here."""
        try:
            return super().wait(gen, interval, timeout or self.patience)
        except psycopg.OperationalError as error:
            has_said_why = error.sqlstate is not None
            if has_said_why or self.info.transaction_status != TransactionStatus.ACTIVE:
                raise
            # A late answer must not be taken for the answer to the next statement.
            self.close()
            raise psycopg.OperationalError(f"no answer within {self.patience} s") from None


def engine_of(url: URL, patience: Patience) -> Engine:
    """Return an engine whose connections have these limits, on both sides."""
    engine = create_engine(
        url,
        pool_size=4,
        pool_pre_ping=True,
        pool_timeout=patience.pool,
        connect_args={"connect_timeout": patience.connect, "application_name": "seb-console"},
    )

    _ping_with(engine, patience)

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: object, _record: object, unnamed: Any, named: Any) -> PatientConnection:
        connection = PatientConnection.connect(*unnamed, **named)
        connection.patience = patience.answer
        try:
            _limit(connection, patience)
        except BaseException:
            connection.close()
            raise
        return connection

    return engine


def _ping_with(engine: Engine, patience: Patience) -> None:
    """Make the pool wait for the answer to a ping for a shorter time."""
    dialect: Any = engine.dialect
    ping = dialect.do_ping

    def do_ping(connection: PatientConnection) -> bool:
        before = connection.patience
        connection.patience = patience.ping
        try:
            return bool(ping(connection))
        finally:
            connection.patience = before

    dialect.do_ping = do_ping


def _limit(connection: PatientConnection, patience: Patience) -> None:
    """Set the limits on the server, for the life of the connection."""
    limits = {
        "statement_timeout": patience.statement,
        "lock_timeout": patience.lock,
        "idle_in_transaction_session_timeout": patience.idle,
    }
    if connection.info.server_version >= _TCP_USER_TIMEOUT_SINCE:
        # The server would wait for a console that does not read, and keep its locks meanwhile.
        limits["tcp_user_timeout"] = patience.idle
    connection.autocommit = True
    for name, seconds in limits.items():
        setting = (name, str(round(seconds * 1000)))
        connection.execute("SELECT set_config(%s, %s, false)", setting)
    connection.autocommit = False


@contextmanager
def with_time(connection: Connection, seconds: float) -> Iterator[None]:
    """Allow a part of a transaction more time, for a migration."""
    driver: Any = connection.connection.driver_connection
    patience = driver.patience
    driver.patience = seconds
    for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
        connection.exec_driver_sql(f"SET LOCAL {name} = {round(seconds * 1000)}")
    try:
        yield
    finally:
        driver.patience = patience
