"""SVD-softmax (Shim et al., NIPS 2017)."""
