module gpuward/tests/oracles/regexp

go 1.24
