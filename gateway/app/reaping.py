"""What has expired, let go of every now and then."""

import asyncio
import logging
from contextlib import suppress

import psycopg
from psycopg_pool import PoolTimeout

from gateway.app.shared import Shared
from gateway.state.idempotency import Idempotency
from schemas.errors import Unavailable

log = logging.getLogger("toolgate.app")

REAP_EVERY_S = 30


async def reap(shared: Shared, idempotency: Idempotency) -> None:
    """Until cancelled. What is in use is kept from expiring, too."""
    while True:
        await asyncio.sleep(REAP_EVERY_S)
        reaped = shared.sessions.reap()
        if reaped:
            log.info("sessions_reaped", extra={"count": reaped})
        with suppress(Unavailable):
            await shared.sessions.renew()
        await shared.stores.purge()
        with suppress(psycopg.OperationalError, PoolTimeout):
            await idempotency.purge()
