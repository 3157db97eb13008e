"""Models that answer in a stream: any OpenAI-compatible endpoint, and one that needs no network.

    async with model.answer(Ask(messages=(Message(role="user", content="hello"),))) as pieces:
        async for piece in pieces:          # Text … ToolCall … and one End
            ...

`Endpoint` is in `clogs.models.endpoint`: it needs the extra `models`.
"""

from clogs.models.errors import ModelError
from clogs.models.finding import EnvironmentModels, Finder, Models
from clogs.models.messages import (
    Answer,
    Ask,
    End,
    Message,
    Model,
    Offer,
    Piece,
    Text,
    ToolCall,
    Usage,
    whole_answer,
)
from clogs.models.offline import OfflineModel, Reply, Rule, by_rules, by_script, small_talk

__all__ = [
    "Answer",
    "Ask",
    "End",
    "EnvironmentModels",
    "Finder",
    "Message",
    "Model",
    "ModelError",
    "Models",
    "Offer",
    "OfflineModel",
    "Piece",
    "Reply",
    "Rule",
    "Text",
    "ToolCall",
    "Usage",
    "by_rules",
    "by_script",
    "small_talk",
    "whole_answer",
]
