"""One folder an experiment: a page to train, its sweep and its score."""
