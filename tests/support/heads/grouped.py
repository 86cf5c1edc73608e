"""Layers and contexts for heads of method grouped."""

from tests.support.layers import list_layers, make_contexts

CLASSES, DIM = 2003, 68  # neither is a multiple of what one instruction reads


OPTIONS = {"width": "30", "groups": "30", "previewed": "1000", "candidates": "200"}
contexts = make_contexts(800, DIM)
rows = contexts.contexts[-80:]
LAYERS = list_layers(CLASSES)
