//! Pure builders, one file per Kubernetes kind.
