"""`Trajectory`: one attempt put together again from its events, as evaluators and people read it."""

from __future__ import annotations

from pydantic import Field, JsonValue

from safactory.contracts.event import Model
from safactory.contracts.messages import Message
from safactory.contracts.steps import StepStatus


class TrajectoryStep(Model):
    """One model call with its messages in full."""

    seq: int
    status: StepStatus
    messages: list[Message]
    """The whole prompt."""
    response: Message | None
    finish_reason: str = ""
    parameters: dict[str, JsonValue] = Field(default_factory=dict)

    @property
    def text(self) -> str:
        """The answer's text, empty when there was no answer."""
        return "" if self.response is None else self.response.text


class Trajectory(Model):
    """The steps of one attempt, in order."""

    session_id: str
    attempt: int
    steps: list[TrajectoryStep]

    @property
    def final_response(self) -> str:
        """The text of the last answer that came whole."""
        answered = [step for step in self.steps if step.status is StepStatus.OK]
        return answered[-1].text if answered else ""
