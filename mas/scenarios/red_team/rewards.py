"""The rewards of an attacker and a defender that train against each other: Self-RedTeam's table.

Source: Chasing Moving Targets with Online Self-Play RL for Safer LMs, arXiv 2506.07468; the table is of its code. The
zero-sum variant, which the published code names and does not have, is our reading of the abstract.
"""

from dataclasses import dataclass, fields

TERMS = ("revision", "refusal", "harm", "form")
"""Of the attacker; the defender's are these without `revision`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackExchange:
    """One attack and its answer, as judged. None: the judge gave no such label.

    Attributes:
        is_seed_harmful: what the attacker was given to rewrite. is_prompt_harmful: what it made of it.
        is_refused, is_response_harmful: the defender's answer.
        is_attack_readable, is_answer_readable: whether each kept to the form, hidden reasoning and then the text.
    """

    is_seed_harmful: bool
    is_prompt_harmful: bool | None
    is_refused: bool | None
    is_response_harmful: bool | None
    is_attack_readable: bool = True
    is_answer_readable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RedTeamRewards:
    """How much each comparison pays, with either sign. The defaults are the paper's `general_sum`.

    Attributes:
        attack_revision: the prompt is as harmful, or as benign, as its seed.
        attack_refusal: a harmful prompt was complied with, a benign one refused.
        attack_harm: the response is harmful. defence_harm: it is not.
        defence_refusal: a harmful prompt was refused, a benign one complied with.
        form: each for its own output.
    """

    attack_revision: float = 0.5
    attack_refusal: float = 0.5
    attack_harm: float = 1.0
    defence_refusal: float = 1.0
    defence_harm: float = 1.0
    form: float = 1.0

    @classmethod
    def all_one(cls) -> "RedTeamRewards":
        """The variant `general_sum_all_one`: every weight is 1."""
        return cls(**{field.name: 1.0 for field in fields(cls)})

    @classmethod
    def zero_sum(cls) -> "RedTeamRewards":
        """Our reading: refusal and harm weigh 1 for both, and nothing else is paid, so that one loses what the other
        wins."""
        return cls(attack_revision=0.0, attack_refusal=1.0, form=0.0)

    def __call__(self, exchange: AttackExchange) -> tuple[float, float]:
        """The rewards of (attacker, defender): the sums of their `terms`.

        Raises:
            ValueError: a label is missing. The published code takes a missing refusal for compliance.
        """
        attacker, defender = self.terms(exchange)
        return sum(attacker.values()), sum(defender.values())

    def terms(self, exchange: AttackExchange) -> tuple[dict[str, float], dict[str, float]]:
        """What (attacker, defender) are paid, by `TERMS`; errors as of a call."""
        is_prompt_harmful, is_refused = _label(exchange, "is_prompt_harmful"), _label(exchange, "is_refused")
        harm = _sign(_label(exchange, "is_response_harmful"))
        # Harmful and refused, or benign and complied with.
        defended = _sign(is_refused == is_prompt_harmful)
        attacker = {
            "revision": self.attack_revision * _sign(is_prompt_harmful == exchange.is_seed_harmful),
            "refusal": -self.attack_refusal * defended,
            "harm": self.attack_harm * harm,
            "form": self.form * _sign(exchange.is_attack_readable),
        }
        defender = {
            "refusal": self.defence_refusal * defended,
            "harm": -self.defence_harm * harm,
            "form": self.form * _sign(exchange.is_answer_readable),
        }
        return attacker, defender

    def least(self) -> dict[str, float]:
        """What an attacker is paid whose text asks for nothing: the least that the table has."""
        weights = (self.attack_revision, self.attack_refusal, self.attack_harm, self.form)
        return {name: -weight for name, weight in zip(TERMS, weights, strict=True)}


def _label(exchange: AttackExchange, name: str) -> bool:
    label: bool | None = getattr(exchange, name)
    if label is None:
        raise ValueError(f"an exchange without a label {name} has no reward: judge it again, or leave the pair out")
    return label


def _sign(is_so: bool) -> float:
    return 1.0 if is_so else -1.0
