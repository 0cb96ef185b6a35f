//! Leader election on a `coordination.k8s.io` Lease.
//!
//! Two clocks never meet: a candidate judges a holder only by when it *saw* the record change, on its own
//! monotonic clock, and a holder stops by itself when its last successful renewal, timed from the moment the
//! request left, is older than the renew deadline. The deadline is shorter than the lease, so a holder that was
//! cut off or frozen has stopped before anybody else may start.

mod election;
mod home;
mod leadership;
mod record;

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use rand::Rng;
use thiserror::Error;

pub use election::{Election, Stopped};
pub use home::deployment_of;
pub use leadership::{Leadership, Lost};

/// Who stands for election: the pod, and this one process in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    holder: String,
    pod_prefix: Option<String>,
}

impl Identity {
    /// With the pod's UID known, a container that was restarted takes over at once from the process that ran
    /// in the same pod before it: the kubelet never runs two of them side by side.
    pub fn new(pod_name: &str, pod_uid: Option<&str>) -> Self {
        let process: u32 = rand::rng().random();
        let pod_prefix = pod_uid.map(|uid| format!("{pod_name}_{uid}_"));
        let holder = match &pod_prefix {
            Some(prefix) => format!("{prefix}{process:08x}"),
            None => format!("{pod_name}_{process:08x}"),
        };
        Self { holder, pod_prefix }
    }

    /// What is written into `holderIdentity`.
    pub fn holder(&self) -> &str {
        &self.holder
    }

    fn succeeds(&self, holder: &str) -> bool {
        holder == self.holder || self.pod_prefix.as_deref().is_some_and(|prefix| holder.starts_with(prefix))
    }
}

/// How long a lease lasts, and how it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    lease_seconds: u16,
    renew_deadline: Duration,
    retry_period: Duration,
}

/// The timing would not keep two leaders apart.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "lease timing must be retry period < renew deadline < lease duration, got {retry_period:?}, \
     {renew_deadline:?}, {lease_seconds}s; write for example 2s, 10s, 15s"
)]
pub struct BadTiming {
    lease_seconds: u16,
    renew_deadline: Duration,
    retry_period: Duration,
}

impl Timing {
    pub fn new(
        lease_seconds: u16,
        renew_deadline: Duration,
        retry_period: Duration,
    ) -> Result<Self, BadTiming> {
        let lease = Duration::from_secs(lease_seconds.into());
        if retry_period.is_zero() || retry_period >= renew_deadline || renew_deadline >= lease {
            return Err(BadTiming { lease_seconds, renew_deadline, retry_period });
        }
        Ok(Self { lease_seconds, renew_deadline, retry_period })
    }

    /// Two tries fit into the deadline, so that one dead connection does not cost the lease.
    fn request_timeout(&self) -> Duration {
        self.renew_deadline / 2
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease_seconds: 15,
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// One Lease, and who wants it.
#[derive(Clone, Debug)]
pub struct Config {
    pub namespace: String,
    pub name: String,
    pub identity: Identity,
    pub timing: Timing,
    /// Whoever leads makes this the owner of the Lease, so that it goes when its owner does.
    pub owner: Option<OwnerReference>,
}

#[cfg(test)]
mod tests;
