from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from safactory.contracts.errors import WeightsError
from safactory.contracts.ids import WeightVersion
from safactory.trainer.policy import Policy
from safactory.trainer.weight_update import WeightUpdate
from safactory.trainer.weights_push import WeightsPush
from tests.unit.trainer.conftest import ModelServer

Make = Callable[[], Awaitable[ModelServer]]


def an_update(policy: Policy, step: int = 1) -> WeightUpdate:
    return WeightUpdate("policy", WeightVersion(step=step), policy.tensors())


async def test_every_server_gets_every_byte(make_model_server: Make, policy: Policy) -> None:
    servers = [await make_model_server() for _ in range(3)]
    push = WeightsPush([server.address for server in servers], timeout_s=5)
    update = an_update(policy)
    outcome = await push.push(update)
    await push.close()
    assert (outcome.committed, outcome.quarantined) == ([server.address for server in servers], [])
    expected = {name: tensor.numpy().tobytes() for name, tensor in policy.tensors().items()}
    for server in servers:
        assert server.tensors == expected
        assert (server.versions, server.digest, server.calls["Abort"]) == (["0.1"], update.digest, 0)
    assert update.size_bytes == sum(map(len, expected.values()))


@pytest.mark.parametrize("call", ["Prepare", "Push", "Verify", "Commit"])
async def test_a_server_that_fails_is_quarantined_and_the_others_go_on(
    make_model_server: Make, policy: Policy, call: str
) -> None:
    good, bad = await make_model_server(), await make_model_server()
    bad.failing = call
    push = WeightsPush([good.address, bad.address], timeout_s=5)
    outcome = await push.push(an_update(policy))
    assert (outcome.committed, outcome.quarantined) == ([good.address], [bad.address])
    assert (good.versions, bad.versions, bad.calls["Abort"]) == (["0.1"], [], 1)
    bad.failing = ""
    assert (await push.push(an_update(policy, step=2))).quarantined == []
    assert bad.versions == ["0.2"]
    await push.close()


async def test_a_version_that_no_server_took_is_not_published(make_model_server: Make, policy: Policy) -> None:
    bad = await make_model_server()
    bad.failing = "Verify"
    push = WeightsPush([bad.address, "127.0.0.1:1"], timeout_s=2)
    with pytest.raises(WeightsError, match=r"no model server took version 0\.1"):
        await push.push(an_update(policy))
    assert await push.serving() != {}
    assert "127.0.0.1:1" not in await push.serving()
    await push.close()


async def test_a_server_that_hangs_costs_its_deadline_and_no_more(make_model_server: Make, policy: Policy) -> None:
    good, hanging = await make_model_server(), await make_model_server()
    hanging.hang_s = 30.0
    push = WeightsPush([good.address, hanging.address], timeout_s=0.5)
    outcome = await push.push(an_update(policy))
    assert outcome.quarantined == [hanging.address]
    assert 0.4 < outcome.push_s < 5
    await push.close()
