"""What benchmarks share: runs on disk, exact truth, dense spellings."""
