"""Advantages: pure functions over lists of numbers and hashable keys, free of torch.

| file | what it gives |
|---|---|
| `members` | what all share: groups of equal keys, spread, checks |
| `keys` | group keys of a turn, by name |
| `group` | rewards against their group: mean, leave-one-out, length-weighted, best; what each group had to teach |
| `greedy` | against a greedy answer's reward (ReMax) |
| `running` | against a mean that is carried over batches (SPIRAL) |
| `whiten` | against the whole batch, of one agent or of all (REINFORCE++, CoMAS) |
| `components` | each reward term by itself (GDPO) |
| `strata` | among trajectories of one structure (Stratified GRPO) |
| `trajectories` | statistics once per trajectory, rows in step order |
| `returns`, `steps` | what follows a step, and groups of steps (GiGPO, UI-S1, SRGPO, EAPO) |
| `gains` | information gained in each turn (IGPO) |
| `uncertainty` | scaled by entropy (EMPG, AEPO) |
| `early` | a bounded bonus for early tool use (ASPO) |
| `inherit` | nested workers get their caller's (MATPO) |
| `tree`, `preferences` | values of a tree's nodes, labels and pairs (AT2PO, MALT) |
| `critic` | against a learned value, by turns or tokens (GAE, POAD) |
"""
