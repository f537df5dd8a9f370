"""Controllers that run in a cluster: of certificates, of GpuExceptions, and of the inventory."""
