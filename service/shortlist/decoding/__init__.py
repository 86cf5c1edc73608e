"""Beam steps and beam search, over a head in this process or a client of a server."""
