from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

from safactory.contracts.errors import ConfigError
from safactory.contracts.ids import WeightVersion
from safactory.trainer.batch import make_batch
from safactory.trainer.checkpoints import Checkpoints, TrainerState
from safactory.trainer.policy import Policy
from safactory.trainer.settings import TrainerSettings
from safactory.trainer.step import optimise
from tests.unit.trainer.conftest import a_sample, a_sequence


def a_state(step: int) -> TrainerState:
    return TrainerState(
        version=WeightVersion(epoch=1, step=step),
        run=("job", step),
        offsets={"safactory.rollout.v1": {0: 5, 3: 7}},
        consumed=["a", "b"],
        steps_done={"job": step},
    )


def train(policy: Policy, settings: TrainerSettings) -> None:
    group = [a_sample(1.0, a_sequence([3, 4], [5])), a_sample(0.0, a_sequence([3, 4], [6]))]
    batch = make_batch([group], settings.loss.advantage, 1000)
    optimise(policy.model, policy.optimiser, batch, settings.optimiser, settings.loss)


def test_training_goes_on_from_a_checkpoint_as_if_it_had_never_stopped(
    settings: TrainerSettings, policy: Policy, tmp_path: Path
) -> None:
    checkpoints = Checkpoints(tmp_path / "c", keep=2)
    train(policy, settings)
    place = checkpoints.write(policy, a_state(1), settings.model_dir)
    train(policy, settings)

    assert checkpoints.latest() == place
    resumed = Policy(settings, place)
    checkpoints.restore_optimiser(place, resumed)
    assert checkpoints.read_state(place) == a_state(1)
    train(resumed, settings)
    for name, tensor in policy.tensors().items():
        assert torch.equal(resumed.tensors()[name], tensor), name


def test_a_checkpoint_is_a_hugging_face_directory_with_a_tied_matrix_stored_once(
    settings: TrainerSettings, policy: Policy, tmp_path: Path
) -> None:
    place = Checkpoints(tmp_path / "c", keep=1).write(policy, a_state(1), settings.model_dir)
    model = transformers.AutoModelForCausalLM.from_pretrained(place)
    assert torch.equal(model.lm_head.weight, policy.model.get_parameter("model.embed_tokens.weight"))
    assert "lm_head.weight" not in policy.tensors()
    assert (place / "tokenizer_config.json").is_file()


def test_a_write_that_was_cut_leaves_the_one_before(settings: TrainerSettings, policy: Policy, tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "c", keep=2)
    place = checkpoints.write(policy, a_state(1), settings.model_dir)
    cut = a_state(2).model_copy(update={"consumed": ["c"]})
    with pytest.raises(FileNotFoundError):
        checkpoints.write(policy, cut, tmp_path / "no such model")
    assert checkpoints.latest() == place
    # And the rest of the cut one is in nobody's way.
    assert checkpoints.write(policy, a_state(2), settings.model_dir) == checkpoints.latest()


def test_only_the_newest_are_kept(settings: TrainerSettings, policy: Policy, tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "c", keep=2)
    for step in range(1, 5):
        checkpoints.write(policy, a_state(step), settings.model_dir)
    assert sorted(path.name for path in (tmp_path / "c").glob("*")) == ["latest", "version-1.3", "version-1.4"]


def test_a_version_written_again_replaces_itself(settings: TrainerSettings, policy: Policy, tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "c", keep=2)
    checkpoints.write(policy, a_state(1), settings.model_dir)
    place = checkpoints.write(policy, a_state(1).model_copy(update={"consumed": ["z"]}), settings.model_dir)
    assert checkpoints.read_state(place).consumed == ["z"]


def test_an_unreadable_state_is_named(tmp_path: Path) -> None:
    (tmp_path / "trainer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"trainer\.json"):
        Checkpoints(tmp_path, keep=1).read_state(tmp_path)
