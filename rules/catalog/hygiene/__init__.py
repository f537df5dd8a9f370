"""What public manifests of GPU pods often lack: they run, and waste or risk something."""
