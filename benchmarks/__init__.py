"""Measurements of Shortlist beside other software; `python -m benchmarks --help` lists the options."""
