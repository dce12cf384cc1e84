"""`Gate`: the parts of one gateway, put together."""

from __future__ import annotations

from dataclasses import dataclass

from safactory.gateway.admission import Admission
from safactory.gateway.relay import Relay
from safactory.gateway.route_table import RouteTable
from safactory.gateway.sealing import Sealing
from safactory.gateway.session_book import SessionBook
from safactory.gateway.settings import GatewaySettings


@dataclass(frozen=True, slots=True)
class Gate:
    """What the HTTP routes need."""

    settings: GatewaySettings
    book: SessionBook
    routes: RouteTable
    admission: Admission
    relay: Relay
    sealing: Sealing
