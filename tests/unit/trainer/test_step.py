from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from safactory.contracts.rollouts import RolloutSample, TokenSequence
from safactory.trainer.advantages import AdvantageKind
from safactory.trainer.batch import Batch, make_batch
from safactory.trainer.policy import Policy
from safactory.trainer.settings import LossSettings, OptimiserSettings
from safactory.trainer.step import DivergedError, accumulate, logprobs_of, make_optimiser, optimise, set_lr
from tests.unit.trainer.conftest import VOCABULARY, a_sample, a_sequence

CENTRED = AdvantageKind.GROUP_CENTRED


def some_groups(seed: int = 1, temperature: float = 1.0) -> list[list[RolloutSample]]:
    """Groups of different lengths, with several turns a sample."""
    draw = random.Random(seed)

    def ids(count: int) -> list[int]:
        return [draw.randrange(3, VOCABULARY) for _ in range(count)]

    groups = []
    for _ in range(3):
        prompt = ids(draw.randint(2, 6))
        groups.append([
            a_sample(
                float(draw.randrange(3)),
                *(a_sequence(prompt + ids(turn), ids(draw.randint(1, 4)), None, temperature) for turn in range(2)),
            )
            for _ in range(4)
        ])
    return groups


def on_policy(model: nn.Module, groups: list[list[RolloutSample]]) -> list[list[RolloutSample]]:
    """The same groups with the logprobs that the model itself gives."""

    def exact(sample: RolloutSample) -> RolloutSample:
        sequences = []
        for sequence in sample.sequences:
            logits = model(input_ids=torch.tensor([sequence.token_ids])).logits[0] / sequence.temperature
            logprobs = torch.log_softmax(logits, -1)
            values = [0.0] + [float(logprobs[t - 1, token]) for t, token in enumerate(sequence.token_ids) if t]
            masked = [value * mask for value, mask in zip(values, sequence.loss_mask, strict=True)]
            sequences.append(sequence.model_copy(update={"logprobs": masked}))
        return sample.model_copy(update={"sequences": sequences})

    with torch.no_grad():
        return [[exact(sample) for sample in group] for group in groups]


def summed_logprob(model: nn.Module, sequence: TokenSequence) -> Tensor:
    logits = model(input_ids=torch.tensor([sequence.token_ids])).logits[0] / sequence.temperature
    chosen = torch.log_softmax(logits, -1)[:-1].gather(1, torch.tensor(sequence.token_ids)[1:, None])[:, 0]
    return (chosen * torch.tensor(sequence.loss_mask)[1:]).sum()


def gradient(model: nn.Module, batch: Batch, loss: LossSettings) -> Tensor:
    with torch.no_grad():
        old = [logprobs_of(model, micro)[0] for micro in batch.micro_batches]
    model.zero_grad()
    accumulate(model, batch, old, loss)
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).clone()


@pytest.fixture
def double(policy: Policy) -> nn.Module:
    return policy.model.double().eval()


def relative(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm())


def test_on_policy_the_gradient_is_that_of_minus_advantage_times_logprob(double: nn.Module) -> None:
    groups = on_policy(double, some_groups(temperature=0.7))
    batch = make_batch(groups, CENTRED, 64)
    found = gradient(double, batch, LossSettings())
    double.zero_grad()
    total = torch.zeros((), dtype=torch.float64)
    for group in groups:
        mean = sum(sample.reward for sample in group) / len(group)
        for sample in group:
            total = (
                total
                - (sample.reward - mean) * torch.stack([summed_logprob(double, s) for s in sample.sequences]).sum()
            )
    (total / batch.sampled_tokens).backward()  # type: ignore[no-untyped-call]
    expected = torch.cat([p.grad.flatten() for p in double.parameters() if p.grad is not None])
    assert relative(found, expected) < 1e-6


@pytest.mark.parametrize("micro_batch_tokens", [1, 24, 100])
def test_micro_batch_size_and_order_of_samples_leave_the_gradient_unchanged(
    double: nn.Module, micro_batch_tokens: int
) -> None:
    groups = some_groups()
    loss = LossSettings(entropy_coef=0.05)
    expected = gradient(double, make_batch(groups, CENTRED, 100_000), loss)
    shuffle = random.Random(2)
    mixed = [shuffle.sample(group, len(group)) for group in shuffle.sample(groups, len(groups))]
    batch = make_batch(mixed, CENTRED, micro_batch_tokens)
    assert len(batch.micro_batches) > 1
    assert relative(gradient(double, batch, loss), expected) < 1e-6


def test_the_denominator_is_every_sampled_token_of_the_step(double: nn.Module) -> None:
    # Ten times a sequence of one token and one of ten: the mean of their means would weigh them differently.
    group = [a_sample(1.0, a_sequence([3, 4], [5])), a_sample(0.0, a_sequence([3, 4], [6] * 10))]
    batch = make_batch(on_policy(double, [group]), CENTRED, 4)
    assert batch.sampled_tokens == 11
    old = [logprobs_of(double, micro)[0].detach() for micro in batch.micro_batches]
    tally = accumulate(double, batch, old, LossSettings())
    assert tally.loss / batch.sampled_tokens == pytest.approx((-0.5 * 1 + 0.5 * 10) / 11)


def test_a_rejected_token_stays_in_the_denominator_and_sends_no_gradient(double: nn.Module) -> None:
    groups = on_policy(double, some_groups())
    sequence = groups[0][0].sequences[0]
    broken = list(sequence.logprobs)
    at = sequence.loss_mask.index(1)
    broken[at] = -math.inf
    sequences = [sequence.model_copy(update={"logprobs": broken}), *groups[0][0].sequences[1:]]
    groups[0][0] = groups[0][0].model_copy(update={"sequences": sequences})
    batch = make_batch(groups, CENTRED, 100_000)
    old = [logprobs_of(double, micro)[0].detach() for micro in batch.micro_batches]
    tally = accumulate(double, batch, old, LossSettings())
    assert tally.rejected == 1
    assert batch.sampled_tokens == make_batch(some_groups(), CENTRED, 100_000).sampled_tokens
    assert torch.isfinite(gradient(double, batch, LossSettings())).all()


def test_the_entropy_bonus_raises_entropy(policy: Policy) -> None:
    group = [a_sample(1.0, a_sequence([3, 4], [5])), a_sample(1.0, a_sequence([3, 4], [6]))]
    batch = make_batch([group], CENTRED, 1000)
    recipe = OptimiserSettings(lr=1e-2)
    optimiser = make_optimiser(policy.model, recipe)
    entropies = [
        optimise(policy.model, optimiser, batch, recipe, LossSettings(entropy_coef=0.1))["entropy"] for _ in range(10)
    ]
    assert entropies[-1] > entropies[0] + 0.1


def test_steps_make_what_was_better_likelier_and_what_was_worse_rarer(policy: Policy) -> None:
    good, bad = a_sequence([3, 4, 5], [6]), a_sequence([3, 4, 5], [7])
    recipe = OptimiserSettings(lr=1e-2, passes=4)
    optimiser = make_optimiser(policy.model, recipe)

    def probabilities() -> tuple[float, float]:
        with torch.no_grad():
            logits = policy.model(input_ids=torch.tensor([[3, 4, 5]])).logits[0, -1]
        chances = logits.softmax(-1)
        return float(chances[6]), float(chances[7])

    before = probabilities()
    for _ in range(5):
        groups = on_policy(policy.model, [[a_sample(1.0, good), a_sample(0.0, bad)]])
        optimise(policy.model, optimiser, make_batch(groups, CENTRED, 1000), recipe, LossSettings())
    after = probabilities()
    assert after[0] > 2 * before[0] or after[0] > 0.9
    assert after[1] < before[1] / 2


def test_an_update_is_made_at_the_rate_that_was_set(policy: Policy) -> None:
    groups = [[a_sample(1.0, a_sequence([3, 4, 5], [6])), a_sample(0.0, a_sequence([3, 4, 5], [7]))]]
    batch = make_batch(groups, CENTRED, 1000)
    before = {name: tensor.clone() for name, tensor in policy.tensors().items()}

    def changed() -> bool:
        optimise(policy.model, policy.optimiser, batch, OptimiserSettings(), LossSettings())
        return any(not torch.equal(tensor, before[name]) for name, tensor in policy.tensors().items())

    set_lr(policy.optimiser, OptimiserSettings(lr=1e-2, lr_final_fraction=0.0).lr_at(1.0))
    assert not changed()
    set_lr(policy.optimiser, 1e-2)
    assert changed()


def test_metrics_of_an_on_policy_step_say_that_it_was_one(policy: Policy) -> None:
    batch = make_batch(on_policy(policy.model, some_groups()), CENTRED, 64)
    values = optimise(policy.model, policy.optimiser, batch, OptimiserSettings(), LossSettings())
    assert values["ratio_mean"] == pytest.approx(1.0, abs=1e-5)
    assert values["ess_fraction"] == pytest.approx(1.0, abs=1e-5)
    assert values["mismatch_k3"] == pytest.approx(0.0, abs=1e-6)
    assert (values["clip_fraction_low"], values["clip_fraction_high"], values["rejected_tokens"]) == (0, 0, 0)
    assert values["grad_norm"] > 0
    assert values["groups"] == 3


def test_later_passes_clip_about_the_policy_before_the_first(policy: Policy) -> None:
    recipe = OptimiserSettings(lr=5e-2, passes=6)
    batch = make_batch(on_policy(policy.model, some_groups()), CENTRED, 64)
    values = optimise(policy.model, make_optimiser(policy.model, recipe), batch, recipe, LossSettings())
    assert values["clip_fraction_low"] + values["clip_fraction_high"] > 0
    assert values["ess_fraction"] == pytest.approx(1.0, abs=1e-5)


def test_a_gradient_that_is_not_finite_changes_no_weight(policy: Policy) -> None:
    before = {name: tensor.clone() for name, tensor in policy.tensors().items()}
    name = "model.layers.0.mlp.down_proj.weight"
    with torch.no_grad():
        policy.model.get_parameter(name)[0, 0] = math.inf
    batch = make_batch(some_groups(), CENTRED, 1000)
    with pytest.raises(DivergedError, match="gradient norm"):
        optimise(policy.model, policy.optimiser, batch, OptimiserSettings(), LossSettings(entropy_coef=0.1))
    after = policy.tensors()
    assert all(torch.equal(after[key], tensor) for key, tensor in before.items() if key != name)


def test_a_batch_with_nothing_to_train_on_changes_no_weight(policy: Policy) -> None:
    before: Sequence[Tensor] = [tensor.clone() for tensor in policy.tensors().values()]
    batch = make_batch([[a_sample(1.0), a_sample(0.0)]], CENTRED, 1000)
    assert optimise(policy.model, policy.optimiser, batch, OptimiserSettings(), LossSettings())["sampled_tokens"] == 0
    assert all(map(torch.equal, before, policy.tensors().values()))
