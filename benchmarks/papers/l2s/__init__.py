"""Learning to Screen (Chen et al., ICLR 2019)."""
