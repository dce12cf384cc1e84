"""The write-ahead file: what was appended is there after any crash, in order."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from safactory.contracts.errors import BusError
from safactory.infra.outbox import Outbox, Record


def a_record(number: int, size: int = 5) -> Record:
    return Record("topic", f"key{number % 2}".encode(), bytes([number]) * size, (("ce_id", b"\xff\n"),))


def drained(outbox: Outbox) -> list[Record]:
    found = []
    while outbox:
        found.append(outbox.first())
        outbox.remove_first()
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "wal" / "test.wal"


def test_records_come_out_in_order_after_a_restart(path: Path) -> None:
    outbox = Outbox(path)
    for number in range(5):
        outbox.append(a_record(number))
    assert drained(Outbox(path)) == [a_record(number) for number in range(5)]


def test_an_empty_outbox_leaves_no_file(path: Path) -> None:
    outbox = Outbox(path)
    assert not outbox
    outbox.append(a_record(0))
    assert path.exists()
    drained(outbox)
    assert not path.exists()


def test_a_crash_in_the_middle_of_a_drain_repeats_and_loses_nothing(path: Path) -> None:
    outbox = Outbox(path)
    for number in range(3):
        outbox.append(a_record(number))
    outbox.remove_first()
    assert drained(Outbox(path))[-2:] == [a_record(1), a_record(2)]


@pytest.mark.parametrize("kept", [1, 10, -2])
def test_a_last_line_that_a_crash_cut_is_passed_over(path: Path, kept: int) -> None:
    outbox = Outbox(path)
    for number in range(3):
        outbox.append(a_record(number))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:kept])
    after = Outbox(path)
    assert len(after) == 2
    after.append(a_record(3))
    assert drained(Outbox(path)) == [a_record(0), a_record(1), a_record(3)]


def test_a_whole_file_is_not_written_again_at_the_start(path: Path) -> None:
    Outbox(path).append(a_record(0))
    before = path.stat()
    Outbox(path)
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


def test_a_disk_that_refuses_is_an_error_and_the_record_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "wal").write_text("a file where the folder should be")
    outbox = Outbox(tmp_path / "wal" / "test.wal")
    with pytest.raises(BusError, match="write-ahead file"):
        outbox.append(a_record(0))
    assert not outbox


def test_a_disk_that_fills_up_in_the_middle_of_a_record_spoils_no_later_one(path: Path) -> None:
    outbox = Outbox(path)
    outbox.append(a_record(0))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, hard))
    try:
        with pytest.raises(BusError):
            outbox.append(a_record(1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    outbox.append(a_record(2))
    assert drained(Outbox(path)) == [a_record(0), a_record(2)]
