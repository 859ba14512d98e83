"""Populations of trained adapters: `mas league psro`.

Every answer is a run directory of its own below one directory, and `psro.json` there says what is known: killed at any
moment, the same call goes on, and what is trained, scored or played is not done again.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

import msgspec
from rich.console import Console

from mas.config.options import Config
from mas.config.servers import RunSource
from mas.core.concurrency import run_blocking, together
from mas.core.errors import ConfigError
from mas.core.scenario import Mixable
from mas.core.seeds import derive_seed
from mas.league.games import LeagueWorld, full_options
from mas.league.match import Fixture, play
from mas.league.payoff import Mix
from mas.league.psro import Expected, Iteration, expected_of, psro
from mas.league.psro_terms import Growth, GrowthStep, GrowthTerms, Payoffs, keep, open_growth, training_of
from mas.league.respond import train_against
from mas.league.tables import growth_line
from mas.league.trained_players import open_runs
from mas.observe.files import write_text_atomic
from mas.runs.resolve import configured_scenario
from mas.runs.train import train_in_directory
from mas.training.exploitability import scored_policy

GAMES = 400
"""Of each pair, where they have to be played and nobody says how many."""
UNTRAINED = "untrained"
"""The run of both seats' first players: adapters that change nothing."""
_RARE = 1e-4
"""Players with a smaller share are not met in training."""
_WRONG = 0.05
"""A greater share of moves that are not legal is told."""
Table = dict[str, dict[str, float]]


class Populations:
    """Two populations of a game's seats that grow by training.

    Args:
        out: the directory of all answers, of `psro.json` and of policies that were scored.
        console: told what happens.

    Raises:
        ConfigError: a game that has not two seats, or what `training_of` refuses.
        RunDirectoryError: see `open_growth`.
    """

    def __init__(self, terms: GrowthTerms, out: Path, console: Console) -> None:
        # Runs name each other by their paths, and these must not depend on how --out is spelled or from where.
        self.terms, self.out = terms, out.resolve()
        self.config = training_of(terms)
        self.scenario = configured_scenario(self.config)
        spec = self.scenario.environment().spec
        if len(spec.seats) != 2:
            raise ConfigError(f"--game {terms.game} has the seats {', '.join(spec.seats)}: psro needs two of them")
        self.seats = spec.seats
        self.world = LeagueWorld(terms.game, self.scenario.environment, full_options(self.config.scenario))
        self.known: Growth = open_growth(terms, self.out)
        self._say = partial(console.print, highlight=False, soft_wrap=True)
        self._policies: dict[str, Table] = {}
        self._answered = dict.fromkeys(self.seats, 0)

    def grow(self) -> list[GrowthStep]:
        """All iterations, each written down and told when it is known."""
        self._begin()
        first, second = (self._name(seat, 0) for seat in self.seats)
        terms = self.terms
        enough = float("-inf") if terms.enough is None else terms.enough
        growing = psro(
            first,
            second,
            self.payoff,
            self.respond,
            solver=terms.solver,
            iterations=terms.iterations,
            risk=terms.risk,
            enough=enough,
        )
        for number, iteration in enumerate(growing):
            self.known.iterations.append(self._told(number, iteration))
            keep(self.known, self.out)
            self._say(growth_line(self.known.iterations[-1]))
        return self.known.iterations

    def respond(self, seat: int, others: Sequence[str], mix: Mix) -> str:
        """Train a best response of a seat to a mix of the other seat's players."""
        own = self.seats[seat]
        number = self._answered[own] = self._answered[own] + 1
        name = self._name(own, number)
        if name in self.known.answers:
            return name
        shares = {other: float(share) for other, share in zip(others, mix, strict=True) if share >= _RARE}
        self._say(f"{name} learns against {', '.join(f'{share:.2f} {other}' for other, share in shares.items())}")
        begin = str(self._run(self._name(own, number - 1))) if self.terms.start == "last" else None
        outcome = train_against(
            self._training(name),
            {other: f"run:{self._run(other)}" for other in shares},
            shares,
            self._run(name),
            seats=[own],
            start=begin,
            console=Console(quiet=True),
        )
        self.known.answers[name] = outcome.progress.tokens
        keep(self.known, self.out)
        return name

    def payoff(self, first: str, second: str) -> Expected:
        """What two players get: exactly, or from games; see `GrowthTerms.games`."""
        found = self._met(first, second)
        if found is None:
            if self.known.is_exact:
                self._keep_met((first, second), self._computed(first, second), 0)
            else:
                run_blocking(self._played(self._unmet()))
            found = self._met(first, second)
        assert found is not None
        return found.expected

    def policy(self, player: str) -> Table | None:
        """What a player does at each decision of its seat; None: it cannot be scored, which is asked anew each time, as
        an engine that gave no scores may give them later."""
        if player not in self._policies:
            path = self.out / "policies" / f"{player}.json"
            if not path.is_file():
                scored = run_blocking(self._scored(player))
                if scored is None:
                    return None
                path.parent.mkdir(parents=True, exist_ok=True)
                write_text_atomic(path, msgspec.json.encode(scored).decode())
            self._policies[player] = msgspec.json.decode(path.read_bytes(), type=Table)
        return self._policies[player]

    def nash_conv(self, players: tuple[Sequence[str], Sequence[str]], mixes: Sequence[Mix]) -> float | None:
        """How far two mixes of players are from an equilibrium of the whole game; None: it cannot be computed.

        Each mix becomes one policy of its seat that plays as it does, see `Mixable.mixed`.
        """
        if not isinstance(self.scenario, Mixable):
            return None
        joint: dict[str, Mapping[str, float]] = {}
        for seat, names, mix in zip(self.seats, players, mixes, strict=True):
            tables = []
            for name in names:
                table = self._table(name) if self.known.is_exact else self.policy(name)
                if table is None:
                    return None
                tables.append(table)
            joint |= self.scenario.mixed(seat, tables, [float(share) for share in mix])
        return self.scenario.solve(joint)["nash_conv"]

    def _begin(self) -> None:
        if not self.known.answers:
            self._say(f"{self.out / UNTRAINED}: adapters that change nothing, the first players")
            config = self._training(UNTRAINED)
            config = config.model_copy(update={"train": config.train.model_copy(update={"steps": 0})})
            train_in_directory(config, self.scenario, console=Console(quiet=True))
            self.known.answers |= {self._name(seat, 0): 0 for seat in self.seats}
        if self.known.is_exact is None:
            is_scored = self.policy(self._name(self.seats[0], 0)) is not None and isinstance(self.scenario, Mixable)
            self.known.is_exact = is_scored and self.terms.games is None
        keep(self.known, self.out)
        games = self.terms.games or GAMES
        how = "computed exactly" if self.known.is_exact else f"estimated from {games} games a pair"
        self._say(f"{self.terms.game}, meta-solver {self.terms.solver}; payoffs are {how}")

    def _training(self, name: str) -> Config:
        """The configuration of a run of its own, with random numbers of its own."""
        train = self.config.train
        seed = derive_seed("psro", train.seed, name) % 2**31
        train = train.model_copy(update={"seed": seed})
        return self.config.model_copy(update={"train": train, "run_dir": str(self._run(name))})

    def _told(self, number: int, iteration: Iteration[str]) -> GrowthStep:
        mixes = iteration.mixes
        named = [
            {name: float(share) for name, share in zip(names, mix, strict=True)}
            for names, mix in zip(iteration.populations, mixes, strict=True)
        ]
        return GrowthStep(
            number=number,
            players=iteration.populations,
            mixes=(named[0], named[1]),
            value=float(mixes.first @ iteration.means[0] @ mixes.second),
            inside=iteration.inside,
            gained=iteration.gained,
            nash_conv=self.nash_conv(iteration.populations, mixes),
            tokens=sum(self.known.answers[name] for names in iteration.populations for name in names),
        )

    def _computed(self, first: str, second: str) -> Expected:
        one, two = self._table(first), self._table(second)
        assert isinstance(self.scenario, Mixable)
        ends = self.scenario.outcomes({**one, **two})
        means = [sum(chance * got[seat] for got, chance in ends) for seat in (0, 1)]
        squares = [sum(chance * (got[seat] - means[seat]) ** 2 for got, chance in ends) for seat in (0, 1)]
        return Expected((means[0], means[1]), (squares[0], squares[1]))

    async def _played(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Every pair plays the same deals, and what it got is kept before the next one plays."""
        games = self.terms.games or GAMES
        self._say(f"{len(pairs)} pairs play {games} games each")
        wanted = {name: RunSource(self._run(name)) for name in dict.fromkeys(name for pair in pairs for name in pair)}
        async with open_runs(wanted, self.world, self._say) as players:

            async def one(pair: tuple[str, str], number: int) -> tuple[float, float]:
                seed = derive_seed("psro", "game", self.config.train.seed, number)
                got = (await play(self.world.open(), Fixture(pair, seed, 0, number), players)).returns
                return got[0], got[1]

            for pair in pairs:
                found = expected_of(await together([one(pair, number) for number in range(games)], "game"))
                assert found is not None
                self._keep_met(pair, found, games)

    def _table(self, player: str) -> Table:
        """The policy of a player whose payoffs are computed."""
        table = self.policy(player)
        if table is None:
            raise ConfigError(
                f"{player}: its moves in {self._run(player)} could not be scored, and payoffs here are computed "
                "from scores. Give the same command again once its engine answers, or take another --out with "
                f"--games {GAMES}, which plays instead"
            )
        return table

    def _keep_met(self, pair: tuple[str, str], found: Expected, games: int) -> None:
        means, variances = found.means, found.variances
        met = Payoffs(first=pair[0], second=pair[1], means=means, variances=variances, games=games)
        self.known.payoffs.append(met)
        keep(self.known, self.out)

    async def _scored(self, player: str) -> Table | None:
        async with open_runs({player: RunSource(self._run(player))}, self.world, self._say) as players:
            team = players[player]
            found = await scored_policy(team.runtime, team.scenario)
        if found is None or not isinstance(self.scenario, Mixable):
            return None
        seat = player.rpartition("-")[0]
        own = {one.key for one in self.scenario.decisions() if one.seat == seat}
        wrong = 1 - fmean(found.legal[key] for key in own)
        if wrong > _WRONG:
            self._say(f"{player}: {wrong:.0%} of its moves are not legal; payoffs and NashConv are of the others")
        return {key: dict(chances) for key, chances in found.policy.items() if key in own}

    def _met(self, first: str, second: str) -> Payoffs | None:
        return next((one for one in self.known.payoffs if (one.first, one.second) == (first, second)), None)

    def _unmet(self) -> list[tuple[str, str]]:
        """Pairs of all players that there are which have not met."""
        first, second = (
            [self._name(seat, number) for number in range(self._answered[seat] + 1)] for seat in self.seats
        )
        return [(one, two) for one in first for two in second if self._met(one, two) is None]

    def _name(self, seat: str, number: int) -> str:
        return f"{seat}-{number}"

    def _run(self, player: str) -> Path:
        return self.out / (UNTRAINED if player.endswith("-0") else player)
