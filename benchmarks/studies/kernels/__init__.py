"""The compiled loops beside numba's, which they replaced, on every target that the processor has."""
