"""Mixtape (Yang et al., NeurIPS 2019) and the mixture of softmaxes (Yang et al., ICLR 2018)."""
