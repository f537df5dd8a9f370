"""The admission webhook: AdmissionReviews in, AdmissionReviews out."""
