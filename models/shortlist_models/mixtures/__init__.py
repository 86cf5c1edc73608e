"""Mixtures, whose log-probabilities are of a higher rank than d: Mixtape, and the mixture of softmaxes."""
