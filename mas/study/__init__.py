"""Studies: several arms on several scenarios over several seeds, at equal token budgets."""
