"""Streaming language models: any OpenAI-compatible endpoint, and an offline model that needs no network.

    async with model.answer(Ask(messages=(Message(role="user", content="hello"),))) as pieces:
        async for piece in pieces:          # Text … ModelToolCall … and one ModelEnd
            ...

Read `messages` first (requests, pieces of an answer, the `Model` protocol), then `errors`, `offline` and `registry`
(models by name). `endpoint` and `chunks` implement the HTTP client; `Endpoint` is imported from `clogs.models.endpoint`
because it needs the extra `models`. `streaming` publishes an answer as events of a run.
"""

from clogs.models.errors import ModelError
from clogs.models.messages import (
    Ask,
    Message,
    Model,
    ModelAnswer,
    ModelEnd,
    ModelToolCall,
    Offer,
    Piece,
    Text,
    Usage,
    whole_answer,
)
from clogs.models.offline import ModelReply, OfflineModel, Rule, by_rules, by_script, small_talk
from clogs.models.registry import EnvironmentModels, Finder, Models

__all__ = [
    "Ask",
    "EnvironmentModels",
    "Finder",
    "Message",
    "Model",
    "ModelAnswer",
    "ModelEnd",
    "ModelError",
    "ModelReply",
    "ModelToolCall",
    "Models",
    "Offer",
    "OfflineModel",
    "Piece",
    "Rule",
    "Text",
    "Usage",
    "by_rules",
    "by_script",
    "small_talk",
    "whole_answer",
]
