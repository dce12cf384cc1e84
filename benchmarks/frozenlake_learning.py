"""How fast the seed model learns FrozenLake when nothing but the mathematics is in the way.

One process, no services: episodes are played directly with the model, by the environment's own prompt, rules, score
and maps, and trained on with the trainer's own batch and step. It answers which hyperparameters the demo needs, how
many episodes that takes, and how much staleness it stands. Run `python benchmarks/frozenlake_learning.py --help`.
"""

from __future__ import annotations

import argparse
import collections
import copy
import dataclasses
import importlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import transformers

from safactory.contracts.endings import EndReason
from safactory.contracts.rollouts import RolloutSample, TokenSequence
from safactory.inference.seed_model import write_seed_model
from safactory.trainer.batch import make_batch
from safactory.trainer.settings import LossSettings, OptimiserSettings
from safactory.trainer.step import make_optimiser, optimise, set_lr

ENVIRONMENT = Path(__file__).parents[1] / "environments" / "frozenlake"
sys.path.insert(0, str(ENVIRONMENT))
runner = importlib.import_module("runner")
rules = importlib.import_module("rule_evaluator")

Layout = tuple[str, ...]


@dataclasses.dataclass
class Game:
    """One game on one map, by the environment's own rules."""

    cells: Layout
    words: list[str] = dataclasses.field(default_factory=list)

    @property
    def places(self) -> list[tuple[int, int]]:
        return list(rules.replay(self.cells, self.words))

    @property
    def outcome(self) -> str:
        return str(rules.outcome_of(self.cells, self.places[-1]))

    @property
    def over(self) -> bool:
        return self.outcome != "out_of_moves" or len(self.words) == rules.MAX_MOVES

    @property
    def reward(self) -> float:
        """0-1."""
        return float(rules.score_of(self.cells, self.places, self.words)) / float(rules.GOAL_SCORE)

    def prompt(self) -> str:
        return str(runner.observation(self.cells, self.places[-1]))


def layouts(name: str) -> list[Layout]:
    """The maps of one of the environment's datasets."""
    lines = (ENVIRONMENT / "datasets" / f"{name}.jsonl").read_text().splitlines()
    return [tuple(json.loads(line)["map"]) for line in lines]


class Player:
    """Plays many games at once with one model."""

    def __init__(self, model: torch.nn.Module, tokenizer: transformers.PreTrainedTokenizerBase, seed: int) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.generator = torch.Generator().manual_seed(seed)

    def prompt_ids(self, game: Game) -> list[int]:
        message = [{"role": "user", "content": game.prompt()}]
        text = self.tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False)
        return list(self.tokenizer(text)["input_ids"])

    @torch.no_grad()
    def play(self, games: list[Game], temperature: float) -> list[list[TokenSequence]]:
        """Play to the end; one sequence a move."""
        sequences: list[list[TokenSequence]] = [[] for _ in games]
        while live := [at for at, game in enumerate(games) if not game.over]:
            ids_B_T = torch.tensor([self.prompt_ids(games[at]) for at in live])
            logits_B_V = self.model(input_ids=ids_B_T, logits_to_keep=1).logits[:, -1] / temperature
            logprobs_B_V = torch.log_softmax(logits_B_V, -1)
            chosen_B = torch.multinomial(logprobs_B_V.exp(), 1, generator=self.generator)[:, 0]
            words = self.tokenizer.convert_ids_to_tokens(chosen_B.tolist())
            for row, (at, word) in enumerate(zip(live, words, strict=True)):
                prompt = ids_B_T[row].tolist()
                sequences[at].append(
                    TokenSequence(
                        token_ids=[*prompt, int(chosen_B[row])],
                        loss_mask=[0] * len(prompt) + [1],
                        logprobs=[0.0] * len(prompt) + [float(logprobs_B_V[row, chosen_B[row]])],
                        temperature=temperature,
                    ),
                )
                games[at].words.append(word)
        return sequences


def play_groups(player: Player, maps: list[Layout], options: argparse.Namespace) -> list[list[RolloutSample]]:
    """One group a map, all played at once."""
    games = [Game(cells) for cells in maps for _ in range(options.samples)]
    sequences = player.play(games, options.temperature)
    samples = [
        RolloutSample(
            session_id=str(at),
            attempt=1,
            reason=EndReason.SUCCEEDED if game.outcome == "goal" else EndReason.FAILED,
            reward=game.reward,
            in_loss=True,
            sequences=sequences[at],
        )
        for at, game in enumerate(games)
    ]
    return [samples[at : at + options.samples] for at in range(0, len(samples), options.samples)]


def success(player: Player, maps: list[Layout], temperature: float, repeats: int) -> float:
    games = [Game(cells) for cells in maps for _ in range(repeats)]
    player.play(games, temperature)
    return sum(game.outcome == "goal" for game in games) / len(games)


def tasks(maps: list[Layout], seed: int) -> Iterator[Layout]:
    shuffle = random.Random(seed)
    while True:
        yield from shuffle.sample(maps, len(maps))


def learn(options: argparse.Namespace, seed: int) -> list[float]:
    """Train once; return held-out success before, and after at each evaluation temperature."""
    with tempfile.TemporaryDirectory() as folder:
        write_seed_model(Path(folder), seed=seed, init_std=options.init_std, embedding_std=options.embedding_std)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    train, held_out = layouts("train"), layouts("heldout")
    recipe = OptimiserSettings(
        lr=options.lr,
        lr_final_fraction=options.lr_final_fraction,
        beta2=options.beta2,
        grad_clip=options.grad_clip,
        passes=options.passes,
    )
    optimiser = make_optimiser(model, recipe)
    loss = LossSettings(entropy_coef=options.entropy, advantage=options.advantage)
    versions = collections.deque([copy.deepcopy(model)], maxlen=options.lag + 1)
    feed = tasks(train, seed)
    before = success(Player(model, tokenizer, 1), held_out, 1.0, 20)
    episodes = step = 0
    began = time.perf_counter()
    while True:
        groups: list[list[RolloutSample]] = []
        while len(groups) < options.groups and episodes < options.episodes:
            maps = [next(feed) for _ in range(options.groups - len(groups))]
            made = play_groups(Player(versions[0], tokenizer, hash((seed, episodes))), maps, options)
            episodes += sum(map(len, made))
            # As dataelf does: a group whose rewards are equal teaches nothing, but its episodes are spent.
            groups += (group for group in made if len({sample.reward for sample in group}) > 1)
        if len(groups) < options.groups:
            break
        batch = make_batch(groups, loss.advantage, 16384)
        set_lr(optimiser, recipe.lr_at(min(episodes / options.episodes, 1.0)))
        values = optimise(model, optimiser, batch, recipe, loss)
        versions.append(copy.deepcopy(model))
        step += 1
        if options.verbose and step % 4 == 0:
            now = success(Player(model, tokenizer, 1), held_out, 0.2, 5)
            print(
                f"  step {step} episodes {episodes} reward {values['reward_mean']:.2f} held-out {now:.2f} "
                f"entropy {values['entropy']:.2f} ratio {values['ratio_mean']:.2f} ess {values['ess_fraction']:.2f} "
                f"grad {values['grad_norm']:.2f} k3 {values['mismatch_k3']:.3f}",
                flush=True,
            )
    trained = success(Player(model, tokenizer, 1), train, 0.2, 5)
    after = [success(Player(model, tokenizer, 1), held_out, t, 20) for t in (1.0, 0.5, 0.2)]
    print(
        f"seed {seed}: {step} steps, {episodes} episodes, {time.perf_counter() - began:.0f} s; held-out success "
        f"{before:.2f} -> T=1 {after[0]:.2f}, T=.5 {after[1]:.2f}, T=.2 {after[2]:.2f}; training maps {trained:.2f}",
        flush=True,
    )
    return [before, *after]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--episodes", type=int, default=2600)
    parser.add_argument("--groups", type=int, default=4, help="groups a step")
    parser.add_argument("--samples", type=int, default=8, help="episodes a group")
    parser.add_argument("--passes", type=int, default=8)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--lr-final-fraction", type=float, default=1.0, help="what is left of it at the end")
    parser.add_argument("--beta2", type=float, default=0.95)
    parser.add_argument("--grad-clip", type=float, default=1.0)
    parser.add_argument("--entropy", type=float, default=0.08)
    parser.add_argument("--advantage", default="grpo")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--lag", type=int, default=2, help="versions that the sampling model is behind")
    parser.add_argument("--init-std", type=float, default=0.125)
    parser.add_argument("--embedding-std", type=float, default=0.05)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    results = [learn(options, seed) for seed in options.seeds]
    means = [sum(column) / len(column) for column in zip(*results, strict=True)]
    worst = [min(column) for column in zip(*results, strict=True)]
    print(
        f"mean: before {means[0]:.2f}, T=1 {means[1]:.2f}, T=.5 {means[2]:.2f}, T=.2 {means[3]:.2f}; "
        f"worst T=1 {worst[1]:.2f}, T=.5 {worst[2]:.2f}, T=.2 {worst[3]:.2f}"
    )


if __name__ == "__main__":
    main()
