module gpuward.test/realnode/shim-client

go 1.26.0
