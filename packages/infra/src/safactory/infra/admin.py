"""`admin_client`: a short talk with a broker about its topics."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError


@contextlib.asynccontextmanager
async def admin_client(servers: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """Open an admin client; closing it never hides what went wrong before.

    Raises:
        KafkaError: the broker is away.
    """
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    try:
        await admin.start()
        yield admin
    finally:
        with contextlib.suppress(KafkaError, OSError):
            await admin.close()
