"""The body of `POST /v1/chat/completions`: OpenAI's, and the extras that vLLM's users know."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from safactory.contracts.errors import UpstreamError
from safactory.inference.generation import GenerationRequest
from safactory.inference.sampling import SamplingParams

TOP_LOGPROBS_MAX = 20


class TextPart(BaseModel):
    """A piece of a message's content."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    """One message of the prompt; fields that only some templates know are passed on."""

    model_config = ConfigDict(extra="allow")

    __pydantic_extra__: dict[str, JsonValue]
    role: str
    content: str | list[TextPart] | None = None

    def for_template(self) -> dict[str, JsonValue]:
        """Return the message as chat templates expect it: content is one string."""
        content = self.content
        text = "".join(part.text for part in content) if isinstance(content, list) else content or ""
        return {**self.__pydantic_extra__, "role": self.role, "content": text}


class StreamOptions(BaseModel):
    """What a stream has besides its choices."""

    model_config = ConfigDict(extra="ignore")

    include_usage: bool = False


class ChatRequest(BaseModel):
    """One request; what is not known is ignored, as OpenAI's own servers do for newer clients."""

    model_config = ConfigDict(extra="ignore")

    model: str
    messages: list[ChatMessage] = Field(min_length=1)
    tools: list[dict[str, JsonValue]] | None = None
    """Shown to the chat template; the answer's tool calls are not parsed."""
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=100)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    stop: str | list[str] | None = None
    n: Literal[1] | None = None
    ignore_eos: bool = False
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=TOP_LOGPROBS_MAX)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    return_weight_versions: bool | None = None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a chunk of usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    def generation(self, prompt_ids: list[int], context_max: int) -> GenerationRequest:
        """Return what the engine is to do.

        Raises:
            UpstreamError: 400, the prompt leaves no room for an answer.
        """
        room = context_max - len(prompt_ids)
        if room < 1:
            raise UpstreamError(
                f"the prompt has {len(prompt_ids)} tokens; the model's context is {context_max}, answer included",
                http_status=400,
                retryable=False,
            )
        wanted = self.max_completion_tokens or self.max_tokens or room
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return GenerationRequest(
            prompt_ids=prompt_ids,
            max_tokens=min(wanted, room),
            sampling=SamplingParams(
                temperature=1.0 if self.temperature is None else self.temperature,
                top_p=1.0 if self.top_p is None else self.top_p,
                top_k=self.top_k or 0,
                seed=self.seed,
            ),
            stop=tuple(text for text in stop if text),
            ignore_eos=self.ignore_eos,
            top_logprobs=(self.top_logprobs or 0) if self.logprobs else 0,
            stream=bool(self.stream),
        )


def parse_request(body: bytes) -> ChatRequest:
    """Read a request's body.

    Raises:
        UpstreamError: 400, and which field is wrong.
    """
    try:
        return ChatRequest.model_validate_json(body)
    except ValidationError as error:
        first: Any = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise UpstreamError(f"{field or 'body'}: {first['msg']}", http_status=400, retryable=False) from None
