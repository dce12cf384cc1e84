"""Snapshots: what a runner left in its working folder, and nothing else."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

from safactory.contracts.endings import EndReason
from safactory.contracts.snapshots import SnapshotTaken
from safactory.infra.outbox import Record

Worker = Any


def _published(worker: Worker) -> list[SnapshotTaken]:
    lines = [line for path in Path(worker.root / "wal").glob("*") for line in path.read_bytes().splitlines(True)]
    return [SnapshotTaken.from_json(Record.from_line(line).value) for line in lines]


async def test_what_a_runner_leaves_is_stored_and_announced(worker: Worker) -> None:
    outcome = await worker.run(
        "os.makedirs('out/deep')\nopen('out/deep/answer.txt', 'w').write('42')\nos.symlink('/etc/passwd', 'link')\n"
        "os.mkfifo('pipe')\nopen(os.environ['TMPDIR'] + '/scratch', 'w').write('no')\nsay()"
    )
    assert outcome.reason is EndReason.SUCCEEDED
    [event] = _published(worker)
    assert (event.files, event.kind, event.job_id) == (2, "workdir", "job-1")
    with tarfile.open(fileobj=io.BytesIO(await worker.objects.get(event.object))) as archive:
        assert sorted(archive.getnames()) == ["link", "out/deep/answer.txt"]
        assert archive.getmember("link").issym()
        answer = archive.extractfile("out/deep/answer.txt")
        assert answer is not None and answer.read() == b"42"


async def test_an_empty_folder_is_not_announced(worker: Worker) -> None:
    await worker.run("os.makedirs('nothing/in/here')\nsay()")
    assert _published(worker) == []


async def test_too_much_is_left_out_and_costs_nothing_else(worker: Worker) -> None:
    outcome = await worker.run("open('big', 'wb').truncate(10_000_000_000)\nsay()")
    assert outcome.reason is EndReason.SUCCEEDED
    assert _published(worker) == []


async def test_a_runner_that_locks_its_folder_cannot_keep_it(worker: Worker) -> None:
    outcome = await worker.run("os.makedirs('a/b')\nopen('a/b/c', 'w').close()\nos.chmod('a/b', 0)\nsay()")
    assert outcome.reason is EndReason.SUCCEEDED
