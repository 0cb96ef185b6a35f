//! The rule, without a network: may we write our name into this record?

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::ObjectMeta;
use tokio::time::Instant;

use super::{Config, Identity};

/// The record as last read, and when we first saw it so.
pub(super) struct Seen {
    pub lease: Lease,
    changed_at: Instant,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Ours already, or our own pod's earlier process wrote it.
    Ours,
    /// Nobody's, released, or not renewed for its whole duration while we watched.
    Free,
    HeldBy(String),
}

impl Seen {
    /// The clock starts again only when the record differs: a write to metadata is no sign of life.
    pub fn update(seen: Option<Self>, lease: Lease, now: Instant) -> Self {
        match seen {
            Some(old) if old.lease.spec == lease.spec => Self { lease, changed_at: old.changed_at },
            _ => Self { lease, changed_at: now },
        }
    }

    pub fn holder(&self) -> Option<&str> {
        let spec = self.lease.spec.as_ref()?;
        spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())
    }

    pub fn verdict(&self, me: &Identity, default_duration: Duration, now: Instant) -> Verdict {
        let Some(holder) = self.holder() else { return Verdict::Free };
        if me.succeeds(holder) {
            return Verdict::Ours;
        }
        let promised = self.lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        let duration = promised
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map_or(default_duration, Duration::from_secs);
        if now.duration_since(self.changed_at) < duration {
            Verdict::HeldBy(holder.to_owned())
        } else {
            Verdict::Free
        }
    }
}

/// The record with our name in it; what others put into metadata stays, the resourceVersion with it.
pub(super) fn claim(seen: Option<&Seen>, config: &Config, now: Timestamp) -> Lease {
    let before = seen.and_then(|seen| seen.lease.spec.clone()).unwrap_or_default();
    let me = config.identity.holder();
    let ours = before.holder_identity.as_deref() == Some(me);
    let transitions = before.lease_transitions.unwrap_or(0);
    let mut metadata = seen.map_or_else(
        || ObjectMeta {
            name: Some(config.name.clone()),
            namespace: Some(config.namespace.clone()),
            ..ObjectMeta::default()
        },
        |seen| seen.lease.metadata.clone(),
    );
    if let Some(owner) = &config.owner {
        metadata.owner_references = Some(vec![owner.clone()]);
    }
    let spec = LeaseSpec {
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: Some(config.timing.lease_seconds.into()),
        acquire_time: if ours { before.acquire_time.clone() } else { Some(MicroTime(now)) },
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(if ours || seen.is_none() { transitions } else { transitions + 1 }),
        ..before
    };
    Lease { metadata, spec: Some(spec) }
}

/// The record given back: the next candidate that looks may take it at once.
pub(super) fn released(seen: &Seen, now: Timestamp) -> Lease {
    let mut lease = seen.lease.clone();
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.renew_time = Some(MicroTime(now));
    lease
}
