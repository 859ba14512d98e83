"""Training that changes no weight: roles learn by libraries of experiences that stand in their prompts.

Each step compares the episodes of a task, an editor says for every trained role what the better ones did otherwise, and
the role's library becomes a new version. Source: Training-Free GRPO, arXiv 2510.08191.
"""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mas.algorithms.parts.experience.editor import Editor, Plain, Proposal, QuoteEditor, groups_of
from mas.algorithms.parts.experience.library import Edited, Library, Limits, apply_operations, described, read_library
from mas.core.concurrency import together
from mas.core.errors import CheckpointError
from mas.core.naming import local_name
from mas.core.records import Episode, total_cost
from mas.core.role import Role, View
from mas.core.scenario import Scenario
from mas.core.seeds import derive_seed
from mas.core.team import TeamSpec
from mas.roles import build_roles
from mas.roles.experiences import taught, unlearned
from mas.training.checkpoint import NO_FILES, Progress, save_checkpoint, verify_checkpoint
from mas.training.engines import open_peer
from mas.training.language_editor import LanguageEditor
from mas.training.session import TeamSession
from mas.training.setup import Setup, trainable_adapters
from mas.training.stages import AdapterAssignment, rewards_of
from mas.training.trainable import Trainable
from mas.training.updates.update import UpdateResult

FOLDER = "experiences"
"""Where libraries lie in a checkpoint and in a run directory, `ROLE.json` each."""


class TrainableLibraries(Trainable):
    """Libraries of experiences. A role begins with those that its spec gives it."""

    def __init__(self, setup: Setup) -> None:
        self._setup, team = setup, setup.team
        self._options = setup.algorithm.experience
        self._team = team
        roles = trainable_adapters(team, "per_role")
        self._libraries = {role: Library(team.roles[role].experiences) for role in roles}
        self._limits = Limits(self._options.most, self._options.characters)
        self._editor: Editor | None = None
        self.assignment = AdapterAssignment(setup.algorithm, {role: role for role in roles})

    @asynccontextmanager
    async def serving(self, session: TeamSession, versions: Mapping[str, int]) -> AsyncIterator[None]:
        """See `Trainable`. The editor's engine is open as long.

        Raises:
            RunError: the team's agents are processes of their own. Otherwise as `open_peer`.
        """
        self._teach(session)
        async with open_peer(self._setup, self._options.peer) as endpoint:
            if self._options.editor == "quote":
                self._editor = QuoteEditor(self._options)
            else:
                self._editor = LanguageEditor(endpoint or session.runtime.endpoint, self._options)
            yield

    async def improve(
        self,
        session: TeamSession,
        episodes: Sequence[Episode],
        trained: Mapping[str, str],
        *,
        step: int,
        lr_scale: float,
    ) -> UpdateResult:
        """Let the editor say what the groups teach every role; `lr_scale` has no meaning here."""
        plain = _plain(session.scenario, self._team, self._libraries)
        edits = await together([self._edit(role, episodes, step, plain) for role in trained], "edit")
        told = dict(zip(trained, edits, strict=True))
        self._libraries |= {role: edited.library for role, (edited, _, _) in told.items()}
        return UpdateResult(
            rows=(),
            advantages=[0.0] * sum(len(episode.turns) for episode in episodes),
            learned={},
            metrics={"experiences": {role: metrics for role, (_, metrics, _) in told.items()}},
            cost=total_cost(spent.cost for _, _, spent in edits),
            notes=[_note(role, edited) for role, (edited, _, _) in told.items()],
        )

    async def publish(self, session: TeamSession, improved: UpdateResult) -> Mapping[str, Any]:
        """Put the libraries as they are now into the prompts."""
        self._teach(session)
        return {}

    def versions(self, session: TeamSession) -> Mapping[str, int]:
        return {role: library.version for role, library in self._libraries.items()}

    def save(self, directory: Path, progress: Progress, keep: int, more: Mapping[str, bytes] = NO_FILES) -> Path:
        """See `save_checkpoint`; every library is a file of it."""
        return save_checkpoint(directory, None, progress, keep, more={**more, **library_files(self._libraries)})

    def load(self, checkpoint: Path) -> Progress:
        progress = verify_checkpoint(checkpoint)
        found = read_libraries(checkpoint / FOLDER)
        if found.keys() != self._libraries.keys():
            raise CheckpointError(
                f"checkpoint {checkpoint} holds libraries of {sorted(found)}, the run has {sorted(self._libraries)}"
            )
        self._libraries = {role: found[role] for role in self._libraries}
        return progress

    @property
    def libraries(self) -> Mapping[str, Library]:
        return dict(self._libraries)

    def _teach(self, session: TeamSession) -> None:
        session.runtime.teach(build_roles_of(self._team, self._libraries))

    async def _edit(
        self, role: str, episodes: Sequence[Episode], step: int, plain: Plain
    ) -> tuple[Edited, dict[str, float], Proposal]:
        """A role's library after a step; what there is to count; all that the editor said and cost."""
        assert self._editor is not None
        editor, library = self._editor, self._libraries[role]
        groups, played = groups_of(
            episodes, role, self._team.members(), self._options, rewards_of(self._setup.algorithm, step - 1), plain
        )
        seed = self._setup.train.seed
        proposals = await together(
            [
                editor.propose(group, library, seed=derive_seed("propose", seed, step, role, group.task))
                for group in groups
            ],
            "propose",
        )
        last = await editor.consolidate(role, library, proposals, seed=derive_seed("consolidate", seed, step, role))
        edited = apply_operations(library, last.operations, self._limits)
        said = [*proposals, last]
        refused = (*(refusal for one in said for refusal in one.refused), *edited.refused)
        spent = Proposal(last.operations, refused, total_cost(one.cost for one in said))
        edited = Edited(edited.library, edited.done, refused)
        return edited, _counted(edited, len(groups), played, spent), spent


def build_roles_of(team: TeamSpec, libraries: Mapping[str, Library]) -> dict[str, Role]:
    """The roles that have libraries, with them in their prompts."""
    known = {role: library.experiences for role, library in libraries.items()}
    roles = build_roles(taught(team, known))
    return {role: roles[role] for role in libraries}


def library_files(libraries: Mapping[str, Library]) -> dict[str, bytes]:
    """Relative names to contents."""
    return {f"{FOLDER}/{role}.json": library.to_text().encode() for role, library in libraries.items()}


def read_libraries(folder: Path) -> dict[str, Library]:
    """The libraries in a folder, by role; none where there is no such folder.

    Raises:
        CheckpointError: a file cannot be read, or holds no library.
    """
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            found[path.stem] = read_library(path.read_text(encoding="utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error
    return found


def _plain(scenario: Scenario, team: TeamSpec, libraries: Mapping[str, Library]) -> Plain:
    """Takes out of an agent's prompt what its role has learned, and the instructions that every prompt begins with."""
    environment = scenario.environment()
    environment.reset(scenario.task("train", 0))
    roles, members = build_roles(taught(team, dict.fromkeys(libraries, ()))), team.members()
    systems = {
        agent: roles[role].chat(View(observation=environment.observe(roles[role].spec.view or local_name(agent))))[0]
        for agent, role in members.items()
    }

    def plain(agent: str, prompt: str) -> str:
        library = libraries.get(members.get(agent, ""))
        if library is not None:
            prompt = unlearned(prompt, library.experiences)
        return prompt.removeprefix(f"{systems.get(agent, '')}\n\n").strip()

    return plain


def _counted(edited: Edited, telling: int, played: int, spent: Proposal) -> dict[str, float]:
    done = Counter(operation.kind for operation in edited.done)
    return {
        "version": edited.library.version,
        "count": len(edited.library.experiences),
        "characters": sum(map(len, edited.library.experiences)),
        "groups": played,
        "groups_telling": telling,
        "added": done["ADD"],
        "updated": done["UPDATE"],
        "deleted": done["DELETE"],
        "refused": len(edited.refused),
        "editor_tokens": spent.cost.tokens(),
        "editor_calls": spent.cost.calls,
    }


def _note(role: str, edited: Edited) -> dict[str, Any]:
    """What became of a library, for people to read."""
    return {
        "role": role,
        **edited.library.to_json(),
        "done": [described(operation) for operation in edited.done],
        "refused": [{"what": refusal.what, "cause": refusal.cause} for refusal in edited.refused],
    }
