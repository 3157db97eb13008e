"""Find models by the names that runs are created with."""

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
    """`default` is the name for runs that do not name a model. `find` raises `ModelError` for an unknown name."""

    @property
    def default(self) -> str: ...

    def find(self, name: str) -> Model: ...


class Models:
    """A fixed list of models; the first is the default."""

    def __init__(self, models: Iterable[Model]) -> None:
        self._models: Mapping[str, Model] = {model.name: model for model in models}
        if not self._models:
            raise ValueError("models must contain at least one model")

    @property
    def default(self) -> str:
        return next(iter(self._models))

    def find(self, name: str) -> Model:
        if (model := self._models.get(name)) is None:
            near = difflib.get_close_matches(name, self._models, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"available: {', '.join(sorted(self._models))}"
            raise ModelError("unknown_model", f"there is no model {name!r}; {hint}")
        return model


class EnvironmentModels:
    """`offline`, and every model of the endpoint at `OCEAN_MODEL_URL`, with the key in `OCEAN_MODEL_KEY`.

    The environment is read when a model is needed, so a clog can be created before the variables are set.
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
                "unknown_model", f"there is no endpoint for {name!r}; set OCEAN_MODEL_URL, or use 'offline'"
            )
        return _endpoint(name, url, "env:OCEAN_MODEL_KEY" if os.environ.get("OCEAN_MODEL_KEY") else None)


@lru_cache(maxsize=64)
def _endpoint(name: str, url: str, key: str | None) -> Model:
    """Return a cached endpoint, so that the system's certificates are read once."""
    try:
        from clogs.models.endpoint import Endpoint
    except ModuleNotFoundError:
        raise ModelError("no_client", "endpoints need the extra: pip install 'ocean-runtime[models]'") from None
    try:
        return Endpoint(name, base_url=url, key=key)
    except ValueError as error:
        raise ModelError("unknown_model", f"OCEAN_MODEL_URL: {error}") from None
