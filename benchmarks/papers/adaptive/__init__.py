"""Adaptive softmax (Grave et al., ICML 2017) and differentiated softmax (Chen et al., ACL 2016)."""
