"""What tests share; tools and benchmarks use it too."""
