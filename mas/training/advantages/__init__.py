"""Advantages: pure functions over lists of numbers and hashable keys, free of torch.

| file | what it gives |
|---|---|
| `group` | rewards against their group: mean, leave-one-out, length-weighted, best; what each group had to teach; |
| | against a mean that is carried over batches (SPIRAL); what all share: groups of equal keys, spread, checks |
| `normalisation` | against the whole batch, of one agent or of all (REINFORCE++, CoMAS); each reward term by itself (GDPO); |
| | among trajectories of one structure (Stratified GRPO) |
| `steps` | what follows a step, groups of steps (GiGPO, UI-S1, SRGPO, EAPO); information gained in each turn (IGPO); |
| | statistics once per trajectory, rows in step order |
| `adjustments` | scaled by entropy (EMPG, AEPO); a bounded bonus for early tools (ASPO); nested workers get their |
| | caller's (MATPO) |
| `tree` | values of a tree's nodes, labels and pairs of siblings (AT2PO, MALT) |
| `gae` | against a learned value, by turns or tokens (GAE, POAD) |

`mas.training.advantage_pipeline` calls them in the order of the options.
"""
