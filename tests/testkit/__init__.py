"""Code that several tests share, and that tools and benchmarks use."""
