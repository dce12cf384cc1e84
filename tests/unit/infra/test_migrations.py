"""Numbered migrations on the real ClickHouse engine, killed between statements and run again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from safactory.contracts.errors import ArchiveError, ConfigError
from safactory.infra.archive import Archive
from safactory.infra.migrations import migrate, read, statements
from safactory.infra.settings import ArchiveSettings

FIRST = """-- two tables; one statement a table
CREATE TABLE IF NOT EXISTS a (x UInt32, note String DEFAULT 'semi;colon') ENGINE = MergeTree ORDER BY x;

CREATE TABLE IF NOT EXISTS b (x UInt32) ENGINE = MergeTree ORDER BY x;
"""
SECOND = "ALTER TABLE a ADD COLUMN IF NOT EXISTS y UInt32;\n"


@pytest_asyncio.fixture(loop_scope="function")
async def archive(tmp_path: Path) -> AsyncIterator[Archive]:
    archive = Archive(ArchiveSettings(url=f"chdb://{tmp_path}/archive"))
    await archive.open()
    yield archive
    await archive.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "migrations"
    folder.mkdir()
    (folder / "0001_first.sql").write_text(FIRST)
    return folder


async def tables(archive: Archive) -> set[str]:
    rows = await archive.query("SELECT name FROM system.tables WHERE database = currentDatabase()")
    return {str(row["name"]) for row in rows}


async def test_files_are_applied_once_and_in_order(archive: Archive, folder: Path) -> None:
    (folder / "0002_second.sql").write_text(SECOND)
    assert await migrate(archive, folder) == ["0001_first.sql", "0002_second.sql"]
    await archive.insert("a", [{"x": 1, "y": 2}])
    assert await migrate(archive, folder) == []
    assert await archive.query("SELECT x, y, note FROM a") == [{"x": 1, "y": 2, "note": "semi;colon"}]


async def test_a_new_file_is_applied_to_an_archive_that_has_the_old_ones(archive: Archive, folder: Path) -> None:
    await migrate(archive, folder)
    (folder / "0002_second.sql").write_text(SECOND)
    assert await migrate(archive, folder) == ["0002_second.sql"]


async def test_a_file_that_broke_off_between_statements_is_taken_up_again(archive: Archive, folder: Path) -> None:
    whole = FIRST + "CREATE TABLE IF NOT EXISTS c (x UInt32) ENGINE = MergeTree ORDER BY x;\n"
    (folder / "0001_first.sql").write_text(FIRST + "CREATE TABLE broken;\n")
    with pytest.raises(ArchiveError, match="CREATE TABLE broken"):
        await migrate(archive, folder)
    assert {"a", "b"} <= await tables(archive)
    (folder / "0001_first.sql").write_text(whole)
    assert await migrate(archive, folder) == ["0001_first.sql"]
    assert {"a", "b", "c"} <= await tables(archive)


async def test_a_file_that_was_changed_after_it_was_applied_is_refused(archive: Archive, folder: Path) -> None:
    await migrate(archive, folder)
    (folder / "0001_first.sql").write_text(FIRST + "-- only a comment\n")
    with pytest.raises(ConfigError, match="add a new file instead") as caught:
        await migrate(archive, folder)
    assert caught.value.file.endswith("0001_first.sql")


def test_statements_end_with_a_semicolon_at_the_end_of_a_line() -> None:
    assert [text.split()[0] for text in statements(FIRST)] == ["CREATE", "CREATE"]
    assert statements("-- nothing\n\n;\n") == []


def test_only_sql_files_are_read_and_by_their_number(tmp_path: Path) -> None:
    for name in ("0010_c.sql", "0002_b.sql", "0001_a.sql", "notes.md"):
        (tmp_path / name).write_text("")
    assert list(read(tmp_path)) == ["0001_a.sql", "0002_b.sql", "0010_c.sql"]


async def test_rows_come_back_as_they_went_in_and_survive_a_restart(archive: Archive, tmp_path: Path) -> None:
    await archive.command(
        "CREATE TABLE t (x Int64, f Float64, s String, l Array(String)) ENGINE = MergeTree ORDER BY x"
    )
    rows: list[dict[str, object]] = [
        {"x": 1, "f": 0.5, "s": "grüße\n\"'\\", "l": ["a", ""]}, {"x": 2, "f": -1.0, "s": "", "l": []},
    ]  # fmt: skip
    await archive.insert("t", rows)
    await archive.insert("t", [])
    assert await archive.query("SELECT * FROM t ORDER BY x") == rows
    await archive.close()
    again = Archive(ArchiveSettings(url=f"chdb://{tmp_path}/archive"))
    await again.open()
    try:
        found = await again.query("SELECT s FROM t WHERE x = {x:Int64} AND s != {s:String}", {"x": 1, "s": "'; DROP"})
        assert found == [{"s": "grüße\n\"'\\"}]
    finally:
        await again.close()


@pytest.mark.parametrize("sql", ["SELECT nothing FROM nowhere", "SELEKT 1"])
async def test_a_refused_query_is_an_archive_error_that_can_be_tried_again(archive: Archive, sql: str) -> None:
    with pytest.raises(ArchiveError, match="query") as caught:
        await archive.query(sql)
    assert caught.value.retryable
    await archive.check()


async def test_an_archive_that_is_not_open_says_so(tmp_path: Path) -> None:
    closed = Archive(ArchiveSettings(url=f"chdb://{tmp_path}/other"))
    with pytest.raises(ArchiveError, match="not open"):
        await closed.check()
    await closed.close()


async def test_an_unknown_kind_of_archive_is_a_config_error() -> None:
    archive = Archive(ArchiveSettings(url="postgres://x"))
    with pytest.raises(ConfigError, match="neither chdb nor clickhouse"):
        await archive.open()
    await archive.close()


async def test_a_server_that_is_away_is_named_without_its_password() -> None:
    archive = Archive(ArchiveSettings(url="clickhouse://me:secret@127.0.0.1:1/db"))
    with pytest.raises(ArchiveError, match="open clickhouse://me") as caught:
        await archive.open()
    assert "secret" not in str(caught.value)
    await archive.close()
