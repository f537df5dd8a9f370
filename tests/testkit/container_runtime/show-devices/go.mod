module gpuward.test/containerruntime/show-devices

go 1.26.0
