"""OpenSpiel's games that are tested, by the names of OpenSpiel 2.0.2.

Left out are games that hide their chance inside, mean-field games, wrappers of other games, `crossword`, whose actions
have no numbers, `quoridor`, which OpenSpiel itself calls faulty, and `repeated_leduc_poker`, whose payoffs do not add
up to zero before the end.
"""

_NAMES = """
2048 amazons antichess backgammon banqi bargaining battleship blackjack blotto breakthrough bridge
capture_the_flag catch checkers chess chinese_checkers cliff_walking clobber coin_game colored_trails
connect_four coop_box_pushing coordinated_mp crazy_eights crazyhouse cribbage cursor_go dark_chess dark_hex
dark_hex_ir deep_sea dots_and_boxes dou_dizhu einstein_wurfelt_nicht euchre first_sealed_auction gin_rummy go
go_fish gomoku goofspiel hanabi havannah hearts hex hive kriegspiel kuhn_poker laser_tag latent_ttt leduc_poker
lewis_signaling liars_dice liars_dice_ir lines_of_action maedn mancala markov_soccer matching_pennies_3p
matrix_bos matrix_brps matrix_cd matrix_coordination matrix_mp matrix_pd matrix_rps matrix_rpsw matrix_sh
matrix_shapleys_game mnk morpion_solitaire nim nine_mens_morris oh_hell oshi_zumo othello oware pathfinding
pentago phantom_go phantom_ttt phantom_ttt_ir pig rbc sheriff shogi skat snake social_deduction solitaire spades
tic_tac_toe tiny_bridge_2p tiny_bridge_4p tiny_hanabi trade_comm twixt ultimate_tic_tac_toe universal_poker
xiangqi y yacht
"""

GAMES = tuple(_NAMES.split())
"""Names without parameters; each takes its own, as `kuhn_poker(players=3)`."""
