"""DPO, arXiv 2305.18290, online: of the candidates of a decision, each above their mean is preferred to each below
it."""

from mas.algorithms.base import Algorithm, Recipe
from mas.algorithms.settings import PREFERENCE, PreferenceSettings

algorithm = Algorithm(
    recipe=Recipe(
        title="DPO, online",
        paper="2305.18290",
        does="Of an agent's candidates in one state, each above their mean is preferred to each below it.",
        differs="pairs are drawn on-policy and labelled by the reward, not by people",
    ),
    parts={
        "sampler": {"mode": "tree"},
        "update": "preference",
        "preference": {"value": "reward"},
    },
    options=PreferenceSettings,
    places=PREFERENCE,
)
