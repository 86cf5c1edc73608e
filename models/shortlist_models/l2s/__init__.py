"""Learning to Screen (Chen et al., ICLR 2019): the screen, its candidate sets, their training."""
