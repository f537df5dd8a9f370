"""The filters of kube-scheduler, to compare `gpuward why` with."""
