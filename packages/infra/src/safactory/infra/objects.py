"""`Objects`: immutable bytes under their own digest, in a folder or in S3.

Write-once: the key is the sha256 of the content, so putting the same bytes again changes nothing and a reader can
verify what it got. A put has returned only when the bytes are durable.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from safactory.contracts.errors import ConfigError, ObjectCorrupt, ObjectError
from safactory.contracts.payload import ObjectRef
from safactory.infra.boundary import boundary
from safactory.infra.settings import ObjectSettings

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from minio import Minio

COMPRESS_FROM_BYTES = 1024
"""Smaller objects are stored as they are."""


class Objects(Protocol):
    """The object store."""

    async def put(self, data: bytes, *, prefix: str = "") -> ObjectRef:
        """Store bytes durably and return their reference.

        Raises:
            ObjectError: the store refused or did not answer.
        """
        ...

    async def get(self, ref: ObjectRef) -> bytes:
        """Return the bytes of a reference, verified.

        Raises:
            ObjectError: the store refused or did not answer.
            ObjectCorrupt: the bytes are not those that the reference promises.
        """
        ...

    async def check(self) -> None:
        """Return when the store is usable.

        Raises:
            ObjectError: it is not.
        """
        ...


def make_objects(settings: ObjectSettings) -> Objects:
    """Return the store that the URL names.

    Raises:
        ConfigError: the URL's scheme is neither file nor s3.
    """
    url = urlsplit(settings.url)
    if url.scheme == "file":
        return FileObjects(Path(url.netloc + url.path))
    if url.scheme == "s3":
        return S3Objects(settings, bucket=url.netloc, prefix=url.path.strip("/"))
    raise ConfigError(f"{settings.url!r} is neither file:///folder nor s3://bucket/prefix", field="OBJECTS_URL")


class FileObjects:
    """Objects as files; a file appears whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    async def put(self, data: bytes, *, prefix: str = "") -> ObjectRef:
        """Store bytes durably and return their reference."""
        return await asyncio.to_thread(self._put, data, prefix)

    async def get(self, ref: ObjectRef) -> bytes:
        """Return the bytes of a reference, verified."""
        return await asyncio.to_thread(self._get, ref)

    async def check(self) -> None:
        """Make the folder if it is not there."""
        with boundary(ObjectError, f"object folder {self._folder}"):
            self._folder.mkdir(parents=True, exist_ok=True)

    def _put(self, data: bytes, prefix: str) -> ObjectRef:
        digest, stored, codec = _encode(data)
        path = self._folder / prefix / digest[:2] / _name(digest, codec)
        ref = ObjectRef(uri=f"file://{path}", sha256=digest, bytes=len(data), codec=codec)
        with boundary(ObjectError, f"write {path}"):
            if path.exists():
                return ref
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
                file.write(stored)
                file.flush()
                os.fsync(file.fileno())
            Path(file.name).replace(path)
        return ref

    def _get(self, ref: ObjectRef) -> bytes:
        path = Path(ref.uri.removeprefix("file://"))
        with boundary(ObjectError, f"read {path}"):
            stored = path.read_bytes()
        return _decode(stored, ref)


class S3Objects:
    """Objects in one bucket, through the `minio` client, which speaks to any S3."""

    def __init__(self, settings: ObjectSettings, *, bucket: str, prefix: str) -> None:
        self._settings = settings
        self._bucket = bucket
        self._prefix = prefix
        self._client: Minio | None = None

    async def put(self, data: bytes, *, prefix: str = "") -> ObjectRef:
        """Store bytes durably and return their reference."""
        return await asyncio.to_thread(self._put, data, prefix)

    async def get(self, ref: ObjectRef) -> bytes:
        """Return the bytes of a reference, verified."""
        return await asyncio.to_thread(self._get, ref)

    async def check(self) -> None:
        """Make the bucket if it is not there."""
        await asyncio.to_thread(self._make_bucket)

    def _connect(self) -> Minio:
        if self._client is None:
            from minio import Minio  # 0.3 s of import that a file store need not pay

            self._client = Minio(
                self._settings.s3_endpoint,
                access_key=self._settings.s3_access_key,
                secret_key=self._settings.s3_secret_key,
                region=self._settings.s3_region,
                secure=self._settings.s3_secure,
            )
        return self._client

    def _make_bucket(self) -> None:
        with boundary(ObjectError, f"bucket {self._bucket} at {self._settings.s3_endpoint}"):
            client = self._connect()
            if not client.bucket_exists(self._bucket):
                client.make_bucket(self._bucket)

    def _put(self, data: bytes, prefix: str) -> ObjectRef:
        digest, stored, codec = _encode(data)
        key = "/".join(part for part in (self._prefix, prefix, digest[:2], _name(digest, codec)) if part)
        with boundary(ObjectError, f"put s3://{self._bucket}/{key}"):
            # Equal keys have equal bytes, so a second writer can only write the same again.
            self._connect().put_object(self._bucket, key, io.BytesIO(stored), len(stored))
        return ObjectRef(uri=f"s3://{self._bucket}/{key}", sha256=digest, bytes=len(data), codec=codec)

    def _get(self, ref: ObjectRef) -> bytes:
        url = urlsplit(ref.uri)
        with boundary(ObjectError, f"get {ref.uri}"):
            response = self._connect().get_object(url.netloc, url.path.lstrip("/"))
            try:
                stored = response.read()
            finally:
                response.close()
                response.release_conn()
        return _decode(stored, ref)


def _name(digest: str, codec: str) -> str:
    return f"{digest}.zst" if codec == "zstd" else digest


def _encode(data: bytes) -> tuple[str, bytes, str]:
    digest = hashlib.sha256(data).hexdigest()
    if len(data) < COMPRESS_FROM_BYTES:
        return digest, data, "identity"
    return digest, zstd.compress(data, 3), "zstd"


def _decode(stored: bytes, ref: ObjectRef) -> bytes:
    try:
        data = zstd.decompress(stored) if ref.codec == "zstd" else stored
    except zstd.ZstdError as error:
        raise ObjectCorrupt(f"{ref.uri} is not valid zstd: {error}") from error
    if len(data) != ref.bytes or hashlib.sha256(data).hexdigest() != ref.sha256:
        raise ObjectCorrupt(f"{ref.uri} does not have the {ref.bytes} bytes with digest {ref.sha256}")
    return data
