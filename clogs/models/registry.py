"""Models by the names that runs are created with."""

import difflib
import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Protocol

from clogs.models.errors import ModelError
from clogs.models.messages import Model
from clogs.models.offline import OfflineModel

OFFLINE = "offline"


class Finder(Protocol):
    """`default` is the name that a run gets which names none. A name without a model raises `ModelError`."""

    @property
    def default(self) -> str: ...

    def find(self, name: str) -> Model: ...


class Models:
    """The models you name, and no others; the first is the default."""

    def __init__(self, models: Iterable[Model]) -> None:
        self._models: Mapping[str, Model] = {model.name: model for model in models}
        if not self._models:
            raise ValueError("give at least one model")

    @property
    def default(self) -> str:
        return next(iter(self._models))

    def find(self, name: str) -> Model:
        if (model := self._models.get(name)) is None:
            near = difflib.get_close_matches(name, self._models, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(self._models))}"
            raise ModelError("unknown_model", f"there is no model {name!r} here; {hint}")
        return model


class EnvironmentModels:
    """`offline`, and whatever the endpoint at `OCEAN_MODEL_URL` has, with the key in `OCEAN_MODEL_KEY`.

    The environment is read when a model is needed, so that a clog may be made before it is set.
    """

    @property
    def default(self) -> str:
        return os.environ.get("OCEAN_MODEL") or OFFLINE

    def find(self, name: str) -> Model:
        if name == OFFLINE:
            return OfflineModel()
        url = os.environ.get("OCEAN_MODEL_URL")
        if not url:
            raise ModelError(
                "unknown_model", f"there is no endpoint for {name!r}: set OCEAN_MODEL_URL, or use 'offline'"
            )
        return _endpoint(name, url, "env:OCEAN_MODEL_KEY" if os.environ.get("OCEAN_MODEL_KEY") else None)


@lru_cache(maxsize=64)
def _endpoint(name: str, url: str, key: str | None) -> Model:
    """Kept, as one that is used again need not read the system's certificates again."""
    try:
        from clogs.models.endpoint import Endpoint
    except ModuleNotFoundError:
        raise ModelError("no_client", "endpoints need the extra: pip install 'ocean-runtime[models]'") from None
    try:
        return Endpoint(name, base_url=url, key=key)
    except ValueError as error:
        raise ModelError("unknown_model", f"OCEAN_MODEL_URL: {error}") from None
