"""Opens the database: locks a SQLite file, migrates an older schema, and refuses a newer one."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, Engine, create_engine, event, inspect, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from console.config.settings import ConsoleSettings
from console.db.connection.continuity import Continuity
from console.db.connection.errors import DatabaseFailedError, message_of
from sinks.shared.errors import ConfigurationError

if TYPE_CHECKING:
    from console.db.connection.postgresql import Patience

DATABASE_FILE: Final = "console.db"
_BUSY_MILLISECONDS: Final = 5000
_CACHE_KIB: Final = 16384
_LOG_PAGES: Final = 4000
_MIGRATIONS: Final = Path(__file__).parents[1] / "schema" / "migrations"
_REVISIONS: Final = "alembic_version"
REVISIONS: Final = tuple(f"{number:04}" for number in range(1, 6))
"""The revisions of the schema, the newest last."""
_UPGRADE_SECONDS: Final = 600.0
_MIGRATING: Final = threading.Lock()
# An arbitrary number that other programs on the same server are unlikely to use.
_ADVISORY_LOCK: Final = 0x5EB_C0DE


class Database:
    """The engines for writing and for reading, and on SQLite the lock of the file."""

    def __init__(self, url: URL, *, patience: Patience | None = None) -> None:
        """`patience`: how long PostgreSQL may take; SQLite has its own limit."""
        self.url = url
        self.is_sqlite = url.get_backend_name() == "sqlite"
        self._lock: sqlite3.Connection | None = None
        self.continuity = Continuity()
        if self.is_sqlite:
            self.writing = _sqlite_engine(url, begin="BEGIN IMMEDIATE", read_only=False)
            self.reading = _sqlite_engine(url, begin="BEGIN", read_only=True)
        else:
            self.writing = _postgresql_engine(url, patience)
            self.reading = self.writing.execution_options(isolation_level="REPEATABLE READ")

    @property
    def address(self) -> str:
        """The address of the database, without its password, for messages."""
        return self.url.render_as_string(hide_password=True)

    def open(self) -> None:
        """Take the lock and migrate the schema. Raises `ConfigurationError` if the file is in use
        or the schema is newer than this console, `DatabaseFailedError` if the database cannot be
        reached.
        """
        if self.is_sqlite and self._lock is None:
            self._lock = _lock(Path(str(self.url.database)))
        try:
            with _MIGRATING, self.writing.connect() as connection:
                _migrate(connection, is_sqlite=self.is_sqlite)
        except SQLAlchemyError as error:
            raise DatabaseFailedError(message_of(error)) from error

    def join(self) -> None:
        """Open the database for one short command while a console may be running. The lock is held
        only for a migration. Raises what `open` raises.
        """
        try:
            with self.reading.connect() as connection:
                is_ours = _is_ours(connection)
        except SQLAlchemyError as error:
            raise DatabaseFailedError(message_of(error)) from error
        if not is_ours:
            self.open()
            self._unlock()

    def close(self) -> None:
        """Close every connection and release the lock."""
        for engine in {self.writing, self.reading}:
            engine.dispose()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def database_url(settings: ConsoleSettings) -> URL:
    """Return the URL of the database that the settings name. Raises `ConfigurationError` if the
    state directory cannot be made.
    """
    if settings.database is not None:
        url = make_url(settings.database.get_secret_value())
        if url.get_backend_name() == "postgresql":
            return url.set(drivername="postgresql+psycopg")
        return url
    try:
        settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"SEB_CONSOLE_STATE_DIR: {settings.state_dir} cannot be made ({error.strerror})"
        ) from None
    return URL.create("sqlite", database=str(settings.state_dir / DATABASE_FILE))


def existing_database(settings: ConsoleSettings) -> Database:
    """Return the database of the settings without opening it, to read beside a running console.
    Raises `ConfigurationError` if there is none.
    """
    url = database_url(settings)
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).is_file():
        raise ConfigurationError(
            f"there is no database at {url.database}; give the settings that the console runs with,"
            " such as SEB_CONSOLE_STATE_DIR"
        )
    return Database(url)


def _sqlite_engine(url: URL, *, begin: str, read_only: bool) -> Engine:
    engine = create_engine(url, connect_args={"check_same_thread": False}, pool_size=4)

    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: object) -> None:
        # Python begins a transaction only at the first write, and then a transaction that has read
        # before fails at once.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={_BUSY_MILLISECONDS}")
        if read_only:
            cursor.execute("PRAGMA query_only=ON")
            # Invalid UTF-8 that another program wrote must not make other rows unreadable.
            connection.text_factory = partial(str, encoding="utf-8", errors="backslashreplace")
        else:
            cursor.execute("PRAGMA journal_mode=WAL")
            cursor.execute("PRAGMA synchronous=FULL")
            # A batch touches many pages of the indexes: they stay in memory, and are copied from
            # the log into the file after several batches instead of after each.
            cursor.execute(f"PRAGMA cache_size={-_CACHE_KIB}")
            cursor.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _postgresql_engine(url: URL, patience: Patience | None) -> Engine:
    from console.db.connection import postgresql  # noqa: PLC0415  # SQLite does without its driver

    return postgresql.engine_of(url, patience or postgresql.Patience())


def _lock(file: Path) -> sqlite3.Connection:
    """Lock a file beside the database, as a SQLite database of its own: SQLite's lock works on
    every system, and ends with the process.
    """
    lock = sqlite3.connect(f"{file}.lock", timeout=0, isolation_level=None, check_same_thread=False)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        with suppress(sqlite3.Error):
            lock.close()
        raise ConfigurationError(
            f"{file} is in use by another console ({error}); stop it, or set "
            "SEB_CONSOLE_DATABASE to PostgreSQL, which several consoles can share"
        ) from None
    return lock


def _is_ours(connection: Connection) -> bool:
    """Check whether the schema is this version's; False if it is older or missing. Raises
    `ConfigurationError` if it is newer.
    """
    current = None
    if inspect(connection).has_table(_REVISIONS):
        current = connection.exec_driver_sql(f"SELECT version_num FROM {_REVISIONS}").scalar()  # noqa: S608
    if current is not None and current not in REVISIONS:
        raise ConfigurationError(
            f"the database's schema {current} is newer than this console; upgrade the console,"
            " or restore the backup that was made before the upgrade"
        )
    return current == REVISIONS[-1]


def _migrate(connection: Connection, *, is_sqlite: bool) -> None:
    with connection.begin():
        if _is_ours(connection):
            return
        if is_sqlite:
            _upgrade(connection)
            return
        from console.db.connection.postgresql import with_time  # noqa: PLC0415  # as above

        with with_time(connection, _UPGRADE_SECONDS):
            # Two consoles may start at once.
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
            if not _is_ours(connection):
                _upgrade(connection)


def _upgrade(connection: Connection) -> None:
    # Alembic takes a fifth of a start to import, and is needed once for each new version.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
