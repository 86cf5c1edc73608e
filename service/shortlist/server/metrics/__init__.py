"""What Prometheus and Triton's statistics see."""
