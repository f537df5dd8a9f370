"""What a pod with a GPU should not be allowed besides."""
