"""Objects under their digests, on a folder; the S3 side without a server is told apart by its errors."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from safactory.contracts.errors import ConfigError, ObjectCorrupt, ObjectError
from safactory.contracts.payload import INLINE_BYTES_MAX, ObjectRef
from safactory.infra.objects import FileObjects, Objects, make_objects
from safactory.infra.payloads import pack, unpack
from safactory.infra.settings import ObjectSettings
from safactory.testkit.builders import an_object_ref
from safactory.testkit.ports import free_port

CONTENTS = [b"", b"x", b"x" * 1023, b"x" * 1024, bytes(range(256)) * 1000]


def stored(ref: ObjectRef) -> Path:
    return Path(ref.uri.removeprefix("file://"))


@pytest.fixture
def folder(tmp_path: Path) -> FileObjects:
    return FileObjects(tmp_path / "objects")


@pytest.mark.parametrize("data", CONTENTS, ids=len)
async def test_what_is_put_is_what_is_got(objects: Objects, data: bytes) -> None:
    ref = await objects.put(data, prefix="things")
    assert (ref.bytes, ref.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert "/things/" in ref.uri
    assert await objects.get(ref) == data


async def test_large_objects_are_compressed_on_disk(folder: FileObjects) -> None:
    ref = await folder.put(b"x" * 100_000)
    assert ref.codec == "zstd"
    assert stored(ref).stat().st_size < 1000


async def test_the_same_bytes_twice_are_one_object_that_is_not_written_again(folder: FileObjects) -> None:
    first = await folder.put(b"abc")
    moment = stored(first).stat().st_mtime_ns
    assert await folder.put(b"abc") == first
    assert stored(first).stat().st_mtime_ns == moment


async def test_a_put_leaves_nothing_but_the_object(folder: FileObjects, tmp_path: Path) -> None:
    ref = await folder.put(b"abc")
    assert [path for path in (tmp_path / "objects").rglob("*") if path.is_file()] == [stored(ref)]


@pytest.mark.parametrize("data", [b"small", b"large " * 1000], ids=["identity", "zstd"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "emptied", "longer"])
async def test_damaged_bytes_are_never_given_out(folder: FileObjects, data: bytes, damage: str) -> None:
    ref = await folder.put(data)
    whole = stored(ref).read_bytes()
    broken = {"flipped": bytes([whole[0] ^ 1]) + whole[1:], "cut": whole[:-1], "emptied": b"", "longer": whole + b"\0"}
    stored(ref).write_bytes(broken[damage])
    with pytest.raises(ObjectCorrupt, match=ref.sha256[:8]) as caught:
        await folder.get(ref)
    assert not caught.value.retryable


async def test_an_object_that_is_not_there_can_come_later(folder: FileObjects, tmp_path: Path) -> None:
    with pytest.raises(ObjectError, match="read") as caught:
        await folder.get(an_object_ref(uri=f"file://{tmp_path}/none"))
    assert caught.value.retryable


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    store = FileObjects(tmp_path / "taken" / "objects")
    with pytest.raises(ObjectError, match="taken/objects"):
        await store.check()
    with pytest.raises(ObjectError, match="write"):
        await store.put(b"x")


async def test_an_s3_server_that_is_away_is_an_error_that_names_it() -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    store = make_objects(ObjectSettings(url="s3://bucket/prefix", s3_endpoint=endpoint, s3_access_key="a"))
    with pytest.raises(ObjectError, match=f"bucket at {endpoint}") as caught:
        await store.check()
    assert caught.value.retryable


@pytest.mark.parametrize("url", ["ftp://x/y", "/a/folder", ""])
def test_another_kind_of_store_is_refused_with_what_is_possible(url: str) -> None:
    with pytest.raises(ConfigError, match=r"file:///folder.*s3://bucket"):
        make_objects(ObjectSettings(url=url))


@pytest.mark.parametrize(
    ("text", "inline"),
    [
        ("", True),
        ("x" * INLINE_BYTES_MAX, True),
        ("x" * (INLINE_BYTES_MAX + 1), False),
        ("ß" * (INLINE_BYTES_MAX // 2), True),
        ("ß" * (INLINE_BYTES_MAX // 2 + 1), False),
        ("😀" * (INLINE_BYTES_MAX // 4), True),
        ("😀" * (INLINE_BYTES_MAX // 4 + 1), False),
    ],
    ids=["empty", "at the limit", "over it", "two bytes each", "over", "four bytes each", "over by one"],
)
async def test_a_payload_goes_by_reference_over_the_limit_in_bytes(objects: Objects, text: str, inline: bool) -> None:
    payload = await pack(objects, text)
    assert (payload.inline is not None, payload.ref is None) == (inline, inline)
    assert await unpack(objects, payload) == text
