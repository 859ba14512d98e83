"""What an editor that is a language model is asked, in four kinds of questions; each answer goes into the next one."""

import json
from collections.abc import Sequence

from mas.training.experience.library import Library
from mas.training.experience.operations import Operation
from mas.training.experience.rollouts import LessonGroup, LessonRollout, Said

COACH = (
    "You coach one member of a team of language-model agents. It never changes by itself: all it can learn is a short "
    "list of written experiences that stands in its instructions. You study its attempts and keep that list."
)

_FORM = (
    'Answer with a JSON list and nothing else. Its entries are {"operation": "ADD", "content": TEXT} for something '
    'new, {"operation": "UPDATE", "id": "G0", "content": TEXT} to put a better text in the place of G0, and '
    '{"operation": "DELETE", "id": "G0"} for an experience that is wrong or useless. [] changes nothing.'
)


def ask_summary(group: LessonGroup, rollout: LessonRollout) -> str:
    """What happened in one episode."""
    return "\n\n".join(
        [
            f"One attempt of the member {group.role!r} at a task, with what it was shown and what it answered:",
            "\n\n".join(_told(said) for said in rollout.said),
            f"The attempt scored {rollout.score:g}.",
            "Summarise it in at most eight sentences: what mattered in what it was shown, what it did step by step and "
            "why that seems to have led to this score. Name the exact point at which it went right or wrong. Do not "
            "solve the task yourself.",
        ]
    )


def ask_experiences(group: LessonGroup, summaries: Sequence[str], library: Library, most: int, characters: int) -> str:
    """What the better ones of a group did otherwise than the worse ones."""
    ranked = sorted(zip(group.rollouts, summaries, strict=True), key=lambda pair: -pair[0].score)
    told = [f"Attempt {number}, score {one.score:g}:\n{text}" for number, (one, text) in enumerate(ranked, start=1)]
    return "\n\n".join(
        [
            f"The member {group.role!r} tried one task {len(ranked)} times, and not always with the same score:",
            *told,
            _shown(library),
            f"Compare the better attempts with the worse ones. What should it do in tasks of this kind that the better "
            f"ones did and the worse ones did not? Write at most {most} experiences, the fewer the better, of at most "
            f"{characters} characters each. Each says first in which situation it holds and then what to do; it must "
            "help with other tasks of this kind, so it names no detail of this one. Leave out what is known already.",
            "Answer with a JSON list of texts and nothing else, [] if there is nothing to learn.",
        ]
    )


def ask_operations(role: str, texts: Sequence[str], library: Library, characters: int) -> str:
    """What new experiences change in the library."""
    return "\n\n".join(
        [
            f"Experiences of the member {role!r} that were found now:\n" + "\n".join(f"- {text}" for text in texts),
            _shown(library),
            "Decide for each new one: add it; or, where a known one is about the same, put a text that joins both in "
            "its place; or delete a known one that the new one shows to be wrong; or do nothing, where it is known. A "
            f"text is one line of at most {characters} characters.",
            _FORM,
        ]
    )


def ask_consolidation(
    role: str, library: Library, operations: Sequence[Sequence[Operation]], most: int, characters: int
) -> str:
    """One list out of the operations that several groups want."""
    wanted = [json.dumps([_written(one) for one in group], ensure_ascii=False) for group in operations]
    return "\n\n".join(
        [
            f"Several tasks of the member {role!r} were studied apart from each other. Each study wants to change the "
            "known experiences:",
            "\n".join(f"Study {number}: {text}" for number, text in enumerate(wanted, start=1)),
            _shown(library),
            "Make one list of changes out of these: join those that say the same, settle those that contradict each "
            f"other, prefer what is general, change each known experience once at most. Afterwards at most {most} "
            f"experiences may be left, of one line and at most {characters} characters each.",
            _FORM,
        ]
    )


def _told(said: Said) -> str:
    who = "It" if said.is_own else f"Its team mate {said.agent!r}"
    failure = "" if said.failure is None else f"\n(This could not be used: {said.failure})"
    return f"{who} was shown:\n{said.shown}\n{who} answered:\n{said.answer}{failure}"


def _shown(library: Library) -> str:
    lines = [f"[{name}] {text}" for name, text in library.named().items()]
    return "\n".join(["Experiences that are known already:", *lines]) if lines else "No experience is known yet."


def _written(operation: Operation) -> dict[str, str]:
    fields = {"operation": operation.kind, "id": operation.target or "", "content": operation.text}
    return {name: text for name, text in fields.items() if text}
