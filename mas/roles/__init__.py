"""Who says what: prompt, parser, context policy, adapter, sampling."""

from mas.roles.base import PromptedRole
from mas.roles.build import BUILT_IN, build_role, build_roles

__all__ = ["BUILT_IN", "PromptedRole", "build_role", "build_roles"]
