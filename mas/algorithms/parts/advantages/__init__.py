"""Advantages: pure functions over lists of numbers and hashable keys, free of torch.

| file | what it gives |
|---|---|
| `group` | rewards against their group (mean, leave-one-out, length-weighted, best), or a mean over batches (SPIRAL) |
| `normalisation` | against the whole batch (REINFORCE++, CoMAS); each reward term (GDPO) or stratum by itself |
| `steps` | what follows a step, groups of steps (GiGPO, UI-S1, SRGPO, EAPO); information gained in each turn (IGPO) |
| `adjustments` | scaled by entropy (EMPG, AEPO); a bonus for early tools (ASPO); inheritance (MATPO) |
| `tree` | values of a tree's nodes, labels and pairs of siblings (AT2PO, MALT) |
| `gae` | against a learned value, by turns or tokens (GAE, POAD) |
| `entropy_trees` | `tree` over turns that were sampled as entropy trees |
| `pipeline` | all of them in the order of the options |
"""
