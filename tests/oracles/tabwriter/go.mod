module gpuward/tests/oracles/tabwriter

go 1.24
