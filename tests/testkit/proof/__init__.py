"""All pods of a finite model, enumerated: what gpuward admits gets no device in silence."""
