"""Models that answer in a stream: any OpenAI-compatible endpoint, and one that needs no network.

    async with model.answer(Ask(messages=(Message(role="user", content="hello"),))) as pieces:
        async for piece in pieces:          # Text … ToolCall … and one End
            ...

`Endpoint` is in `clogs.models.endpoint`: it needs the extra `models`.
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
