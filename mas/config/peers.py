"""Peers that a team names and peers that are configured must be the same."""

from mas.config.experience import BUILT_IN_EDITORS
from mas.config.options import Config
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.core.team import TeamSpec


def check_peers(config: Config, team: TeamSpec) -> None:
    """Refuse a team or an editor with a peer that is not configured, and peers that neither these nor a judge names.

    Raises:
        ConfigError: says which, and what to set.
    """
    wanted = {role.peer: name for name, role in team.roles.items() if role.peer is not None}
    editor = config.algorithm.experience.peer if config.algorithm.is_training_free else None
    if editor is not None and editor not in config.peers:
        raise ConfigError(
            f"experiences are edited by {editor!r}, a peer that is not configured: set peers.{editor}.url to its "
            f"server. {did_you_mean(editor, (*BUILT_IN_EDITORS, *config.peers))}"
        )
    for peer, role in wanted.items():
        if peer not in config.peers:
            raise ConfigError(
                f"role {role!r} of team {team.name!r} is played by peer {peer!r}, which is not configured: set "
                f"peers.{peer}.url to its server. {did_you_mean(peer, config.peers)}"
            )
    late = config.algorithm.reward.late
    for peer in config.peers:
        if peer not in (*wanted, editor) and (late is None or late.judge != peer):
            raise ConfigError(
                f"peers.{peer} is configured, but no role of team {team.name!r} has 'peer: {peer}'. "
                f"{did_you_mean(peer, wanted)}"
            )
