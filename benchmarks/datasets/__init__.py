"""Data sets of the benchmarks, a module each."""
