"""What is said by somebody who knows how an answer must look, and nothing else."""

from collections.abc import Sequence
from random import Random

from mas.core.messages import Action, Failure, Items
from mas.core.role import Role
from mas.roles.base import PromptedRole


def random_answer(role: Role, random: Random, legal: Sequence[str] = ()) -> str | None:
    """One of the role's choices, several in a row where its answers are spelled, one of them a line in a list.

    None: it has no choices, or none that it can read; any text may then be right.

    Args:
        legal: what the environment allows now, for a role that acts and declares no choices of its own.
    """
    choices = role.choices if isinstance(role, PromptedRole) else role.spec.choices
    if not choices and role.emits == Action.kind:
        choices = tuple(legal)
    readable = [choice for choice in choices if not isinstance(role.parse(choice), Failure)]
    if not readable:
        return None
    number, between = 1, ""
    if role.emits == Items.kind and isinstance(role, PromptedRole):
        number, between = random.randint(1, role.max_items), "\n"
    elif isinstance(role, PromptedRole) and role.spec.choices and role.is_spelled:
        number = random.randint(1, role.spec.max_tokens)
    text = between.join(random.choice(readable) for _ in range(number))
    return random.choice(readable) if isinstance(role.parse(text), Failure) else text
