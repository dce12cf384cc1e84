"""`Archive`: ClickHouse through `clickhouse-connect`, embedded (`chdb:///folder`) or a server (`clickhouse://…`).

The client is synchronous and the embedded engine is in this process, so all calls run in one thread of their own, in
order. One process may open an embedded archive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from safactory.contracts.errors import ArchiveError, ConfigError
from safactory.infra.boundary import boundary
from safactory.infra.settings import ArchiveSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from clickhouse_connect.driver.client import Client
    from clickhouse_connect.driver.insert import InsertContext

Value = object
"""What a column can hold: str, int, float, bool, datetime, UUID, or a list or map of those."""
Row = Mapping[str, Value]
T = TypeVar("T")


class Archive:
    """One connection to ClickHouse."""

    def __init__(self, settings: ArchiveSettings) -> None:
        self._url = settings.url
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="archive")
        self._client: Client | None = None
        self._contexts: dict[tuple[str, ...], InsertContext] = {}

    async def open(self) -> None:
        """Connect.

        Raises:
            ArchiveError: the server does not answer, or another process has the embedded archive open.
            ConfigError: the URL's scheme is neither chdb nor clickhouse.
        """
        await self._call(self._open, f"open {_without_password(self._url)}")

    async def close(self) -> None:
        """Disconnect."""
        client, self._client = self._client, None
        if client is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, client.close)
        self._thread.shutdown(wait=True)

    async def insert(self, table: str, rows: Sequence[Row]) -> None:
        """Insert rows that all have the same columns; returns when they are durable.

        Raises:
            ArchiveError: they were refused, or there was no answer.
        """
        if not rows:
            return
        columns = list(rows[0])
        data = [[row[column] for column in columns] for row in rows]
        await self._call(lambda: self._insert(table, columns, data), f"insert into {table}")

    async def query(self, sql: str, parameters: Mapping[str, Value] | None = None) -> list[dict[str, Value]]:
        """Return the rows of a SELECT; parameters are bound by the server (`{name:Type}`).

        Raises:
            ArchiveError: it was refused, or there was no answer.
        """

        def run() -> list[dict[str, Value]]:
            result = self._connected().query(sql, parameters=dict(parameters or {}))
            return list(result.named_results())

        return await self._call(run, "query")

    async def command(self, sql: str) -> None:
        """Run a statement that returns nothing.

        Raises:
            ArchiveError: it was refused, or there was no answer.
        """
        await self._call(lambda: self._connected().command(sql), sql.split("(", 1)[0].strip()[:80])

    async def check(self) -> None:
        """Return when the archive answers.

        Raises:
            ArchiveError: it does not.
        """
        await self.query("SELECT 1")

    def _insert(self, table: str, columns: list[str], data: list[list[Value]]) -> None:
        client = self._connected()
        place = (table, *columns)
        if place not in self._contexts:
            # Asks the server for the columns' types: a fifth of a small insert, and they do not change.
            self._contexts[place] = client.create_insert_context(table, column_names=columns)
        context = self._contexts[place]
        context.data = data
        try:
            client.insert(context=context)
        finally:
            context.data = None

    def _open(self) -> None:
        import clickhouse_connect  # the embedded engine is 300 MB of library

        url = urlsplit(self._url)
        if url.scheme == "chdb":
            if url.netloc != "memory":
                Path(url.path).mkdir(parents=True, exist_ok=True)
            self._client = clickhouse_connect.get_client(dsn=self._url)
        elif url.scheme in ("clickhouse", "clickhouses"):
            self._client = clickhouse_connect.get_client(
                host=url.hostname or "127.0.0.1",
                port=url.port or 8123,
                username=url.username or "default",
                password=url.password or "",
                database=url.path.strip("/") or "default",
                secure=url.scheme == "clickhouses",
            )
        else:
            raise ConfigError(f"{url.scheme!r} is neither chdb nor clickhouse", field="ARCHIVE_URL")

    def _connected(self) -> Client:
        if self._client is None:
            raise ArchiveError("the archive is not open")
        return self._client

    async def _call(self, run: Callable[[], T], what: str) -> T:
        with boundary(ArchiveError, what):
            return await asyncio.get_running_loop().run_in_executor(self._thread, run)


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return url.replace(f":{parts.password}@", ":…@") if parts.password else url
