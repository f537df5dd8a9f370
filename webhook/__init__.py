"""The cluster's door: AdmissionReview in, AdmissionReview out."""
