//! Types of every custom resource, their CRDs, names, labels, conditions and reasons.
