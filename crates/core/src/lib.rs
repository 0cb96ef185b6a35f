//! The domain: membership, quorum, versions, the rules and plan(). No kube, no tokio.
