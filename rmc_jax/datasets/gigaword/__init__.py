"""English Gigaword, fifth edition: newswire, from its owners' copies."""
