"""Questions with known answers: from a file of your own, or made up."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from mas.core.options import Options, Positive
from mas.scenarios.questions.records import Fields, Scorer, largest_digits, read_questions
from mas.scenarios.questions.reward_function import RewardFunction
from mas.scenarios.questions.scenario import QuestionScenario, room
from mas.scenarios.registry import ScenarioEntry

_OPEN = 64
"""Tokens of an answer that only a function can judge."""
FieldName = Annotated[str, Field(min_length=1)]


class QuestionOptions(Options):
    """Where questions come from and how answers are judged.

    `path`: see `mas.scenarios.rows`; None: made-up ones, which digit of four is the largest. `question`, `answer` and,
    with `scorer=choice`, `choices` are names of fields. `split`: the field that says `train` or `eval` of each row;
    None: what the data set itself has, or where it has no splits `eval_share` of the questions, chosen by content.

    `scorer`: `exact` compares texts without regard to case and white space, `number` the last numbers in them,
    `contains` looks for the answer in what was said, `choice` wants the letter or the text of the right choice.
    `reward`: a Python function that says what an answer is worth instead of a scorer, see
    `mas.scenarios.questions.reward_function`; rows need no answer then.
    `max_tokens`: of what a solver says; None: enough for the longest answer of the file, one character being one token
    at most, and 64 with `reward`; with `scorer=choice` it is 1, a letter. `skill`: share of right
    answers of the noisy teacher that the tiny base learns from.
    """

    path: str | None = None
    question: FieldName = "question"
    answer: FieldName = "answer"
    choices: FieldName = "choices"
    split: FieldName | None = None
    eval_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    scorer: Scorer = "exact"
    reward: FieldName | None = None
    max_tokens: Positive | None = None
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4

    @model_validator(mode="after")
    def _has_a_file(self) -> Self:
        if self.path is None:
            fields = type(self).model_fields
            changed = [
                name for name in ("question", "answer", "choices", "split", "scorer", "reward")
                if getattr(self, name) != fields[name].default
            ]  # fmt: skip
            if changed:
                raise ValueError(f"{', '.join(changed)}: has no effect without a path")
        elif self.choices != type(self).model_fields["choices"].default and self.scorer != "choice":
            raise ValueError(f"choices={self.choices!r} has no effect with scorer={self.scorer}")
        if self.reward is not None and self.scorer != type(self).model_fields["scorer"].default:
            raise ValueError(f"scorer={self.scorer} has no effect with reward={self.reward}: leave one of them out")
        if self.scorer == "choice" and self.max_tokens not in (None, 1):
            raise ValueError(
                f"max_tokens={self.max_tokens} is not possible with scorer=choice: an answer is one letter"
            )
        return self


def build(options: QuestionOptions) -> QuestionScenario:
    """The scenario with these options.

    Raises:
        ConfigError: the file, or a row of it, is not what the options say, or the reward function cannot be imported.
    """
    own: RewardFunction | None = None
    if options.path is None:
        split = largest_digits(options.eval_share)
    else:
        choices = options.choices if options.scorer == "choice" else None
        fields = Fields(options.question, options.answer, choices, options.split, options.reward is None)
        split, rows = read_questions(options.path, fields, options.scorer, options.eval_share)
        own = None if options.reward is None else RewardFunction(options.reward, rows)
    most = options.max_tokens or (room(split, options.scorer) if own is None else _OPEN)
    return QuestionScenario(
        questions=split,
        scorer=options.scorer,
        max_tokens=most,
        skill=options.skill,
        own=own,
        is_brief=own is None and (options.max_tokens is None or options.scorer == "choice"),
    )


ENTRY = ScenarioEntry(QuestionOptions, build, "questions and answers")
