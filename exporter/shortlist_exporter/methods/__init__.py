"""Methods: how a head is made from a dense layer and contexts, a module a method."""
