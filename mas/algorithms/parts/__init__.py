"""What algorithms are made of: pure functions, each in one file with its options and what is wrong with them.

| place | what it holds |
|---|---|
| `options` | all options of an algorithm, composed of those below; `combinations` says which parts do not go together |
| `sampling` | how candidates are drawn, where trees branch, attempts, and which groups are worth training on |
| `rewards` | named terms and their sum; terms that are estimated, judged late, or depend on what others do |
| `advantages` | what a turn is compared with |
| `losses` | of tokens, and of preferences between completions |
| `experience` | what roles learn as text |
| `schedules` | what changes with the step |
| `opponents`, `warm_start` | who plays the other seats; what is imitated before the first step |

It depends on `mas.core` and on what an algorithm is (`mas.algorithms.base`). What plays, serves and learns by these
parts is in `mas.training`.
"""
