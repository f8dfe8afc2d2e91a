"""Settings of an environment: known keys, right types, in range."""

from collections.abc import Mapping

from protocol.errors import Code, NodeError
from rl.environments.interface import Config, Json


def whole(config: Config, name: str, key: str, default: int, low: int, high: int) -> int:
    """A whole number from `low` to `high`.

    Raises:
        NodeError: RL_ENVIRONMENT when it is something else.
    """
    value = config.get(key, default)
    if type(value) is not int or not low <= value <= high:
        raise NodeError(
            Code.RL_ENVIRONMENT,
            f"{name}: {key} is a whole number from {low} to {high}, not {str(value)[:60]!r}.",
        )
    return value


def text(config: Config, name: str, key: str) -> str:
    """A text that has to be there.

    Raises:
        NodeError: RL_ENVIRONMENT when it is missing or something else.
    """
    value = config.get(key)
    if not isinstance(value, str) or not value:
        raise NodeError(Code.RL_ENVIRONMENT, f"{name}: {key} is a text that has to be given.")
    return value


def table(config: Config, name: str, key: str) -> dict[str, Json]:
    """A table, empty unless given.

    Raises:
        NodeError: RL_ENVIRONMENT when it is something else.
    """
    value = config.get(key, {})
    if not isinstance(value, Mapping):
        raise NodeError(Code.RL_ENVIRONMENT, f"{name}: {key} is a table.")
    return dict(value)


def only(config: Config, name: str, *keys: str) -> None:
    """Refuse settings that do not exist.

    Raises:
        NodeError: RL_ENVIRONMENT, naming them.
    """
    if unknown := sorted(set(config) - set(keys)):
        raise NodeError(
            Code.RL_ENVIRONMENT,
            f"{name} has no setting {', '.join(unknown)[:200]}; it has {', '.join(keys) or 'none'}.",
        )
