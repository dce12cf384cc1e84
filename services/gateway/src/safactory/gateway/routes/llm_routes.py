"""`/v1/models` and `PUT /v1/routes/{name}`: which models agents can name, and a way to add one while running."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Request
from fastapi.responses import JSONResponse

from safactory.contracts.errors import ConfigError
from safactory.gateway.errors import Refusal
from safactory.gateway.gate import Gate
from safactory.gateway.settings import parse_route

Text = Annotated[str, Header()]


def llm_routes(gate: Gate) -> APIRouter:
    """Return the routes."""
    router = APIRouter()

    @router.get("/v1/models")
    async def models() -> dict[str, object]:
        data = [{"id": name, "object": "model", "owned_by": "safactory"} for name in gate.routes.names]
        return {"object": "list", "data": data}

    @router.put("/v1/routes/{name}")
    async def put_route(name: str, request: Request, authorization: Text = "") -> JSONResponse:
        try:
            if not gate.admission.is_service(authorization):
                raise Refusal(401, "unauthorized", "adding a route needs the factory's TOKEN_KEY as bearer token")
            gate.routes.put(name, parse_route(name, await request.json()))
        except (ConfigError, ValueError) as error:
            return Refusal(400, "bad_request", str(error)).response()
        except Refusal as refusal:
            return refusal.response()
        return JSONResponse({"name": name})

    return router
