"""Environments: tasks, replies and rewards, and the conversation that carries tokens."""

from rl.environments.interface import ROLES, Config, Environment, Json, Message, Messages, Role, Task
from rl.environments.registry import Installed, installed, load
from rl.environments.transcript import CHATML, PLAIN, Conversation, Renderer, Template, turns

__all__ = [
    "CHATML",
    "PLAIN",
    "ROLES",
    "Config",
    "Conversation",
    "Environment",
    "Installed",
    "Json",
    "Message",
    "Messages",
    "Renderer",
    "Role",
    "Task",
    "Template",
    "installed",
    "load",
    "turns",
]
