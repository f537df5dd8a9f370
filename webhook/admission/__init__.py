"""From an AdmissionReview to a decision. Pure: no files, no clock, no network."""
