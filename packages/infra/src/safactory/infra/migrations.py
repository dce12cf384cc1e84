"""Apply numbered SQL files once, in order, so that a kill at any point can be followed by another try.

ClickHouse has no transactional DDL: every statement must be safe to repeat (IF NOT EXISTS), and a file is recorded
only after its last statement. A file that changed after it was applied is refused.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from safactory.contracts.errors import ConfigError
from safactory.infra.archive import Archive

LEDGER = """CREATE TABLE IF NOT EXISTS schema_migrations (
  name String, sha256 String, applied_at DateTime64(3, 'UTC') DEFAULT now64(3)
) ENGINE = ReplacingMergeTree ORDER BY name SETTINGS fsync_after_insert = 1"""


async def migrate(archive: Archive, folder: Path) -> list[str]:
    """Apply the `NNNN_name.sql` files of a folder that are not applied yet; return their names.

    Raises:
        ArchiveError: a statement failed; the next call begins again with the same file.
        ConfigError: a file that was applied has changed.
    """
    await archive.command(LEDGER)
    applied = {
        str(row["name"]): str(row["sha256"])
        for row in await archive.query("SELECT name, sha256 FROM schema_migrations FINAL")
    }
    done = []
    for name, sql in read(folder).items():
        digest = hashlib.sha256(sql.encode()).hexdigest()
        if name in applied:
            if applied[name] != digest:
                raise ConfigError("was changed after it was applied: add a new file instead", file=str(folder / name))
            continue
        for statement in statements(sql):
            await archive.command(statement)
        await archive.insert("schema_migrations", [{"name": name, "sha256": digest}])
        done.append(name)
    return done


def read(folder: Path) -> dict[str, str]:
    """Return the folder's SQL by file name, in order."""
    return {path.name: path.read_text() for path in sorted(folder.glob("*.sql"))}


def statements(sql: str) -> list[str]:
    """Split at semicolons that end a line; comment lines are dropped."""
    lines = [line for line in sql.splitlines() if not line.lstrip().startswith("--")]
    return [part.strip() for part in "\n".join(lines).split(";\n") if part.strip().rstrip(";")]
