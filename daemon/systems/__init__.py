"""Message systems: the contracts that all of them implement, and one package for each."""
