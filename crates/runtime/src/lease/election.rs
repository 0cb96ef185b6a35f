//! The task that stands for election, renews, and steps down.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::{Api, Client};
use prometheus_client::metrics::gauge::Gauge;
use rand::Rng;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, info, warn};

use super::leadership::Leadership;
use super::record::{Seen, Verdict, claim, released};
use super::{Config, Timing};

/// The election was stopped; nobody will lead here any more.
#[derive(Debug, Error)]
#[error("the election for this lease was stopped")]
pub struct Stopped;

/// A candidate for one Lease, for as long as it lives. Dropped, it ends its tenure and gives the lease back in
/// the background; [`Election::stop`] waits for it.
pub struct Election {
    tenure: watch::Receiver<Option<Leadership>>,
    stop: DropGuard,
    task: JoinHandle<()>,
}

impl Election {
    /// Stands for election until stopped. `leading` is set to 1 while this process leads.
    pub fn start(client: Client, config: Config, leading: Gauge) -> Self {
        let (sender, tenure) = watch::channel(None);
        let stop = CancellationToken::new();
        let candidate = Candidate {
            api: Api::namespaced(client, &config.namespace),
            seen: None,
            must_read: true,
            maybe_ours: false,
            failing: false,
            tenure: Tenure { current: None, sender, leading },
            config,
        };
        let task = tokio::spawn(candidate.run(stop.clone()));
        Self { tenure, stop: stop.drop_guard(), task }
    }

    /// Waits until this process leads.
    pub async fn acquired(&self) -> Result<Leadership, Stopped> {
        let mut tenure = self.tenure.clone();
        let current = tenure.wait_for(Option::is_some).await.map_err(|_| Stopped)?;
        current.clone().ok_or(Stopped)
    }

    /// The tenure of now, if this process leads.
    pub fn current(&self) -> Option<Leadership> {
        self.tenure.borrow().clone().filter(|tenure| tenure.check().is_ok())
    }

    /// Ends the tenure and gives the lease back. Call it when nothing acts any more.
    pub async fn stop(self) {
        drop(self.stop);
        if let Err(error) = self.task.await {
            warn!(%error, "the election task did not end well; the lease expires by itself");
        }
    }
}

/// Our tenure, and everyone who is told of it.
struct Tenure {
    current: Option<Leadership>,
    sender: watch::Sender<Option<Leadership>>,
    leading: Gauge,
}

impl Tenure {
    fn renewed(&mut self, config: &Config, valid_until: Instant) {
        match &self.current {
            Some(tenure) if tenure.check().is_ok() => tenure.extend(valid_until),
            _ => {
                self.end("not renewed within the renew deadline");
                info!(lease = config.name, holder = config.identity.holder(), "became leader");
                let tenure = Leadership::begin(config.name.clone(), valid_until);
                self.current = Some(tenure.clone());
                self.leading.set(1);
                self.sender.send_replace(Some(tenure));
            }
        }
    }

    fn end(&mut self, why: &str) {
        if let Some(tenure) = self.current.take() {
            tenure.end();
            self.leading.set(0);
            self.sender.send_replace(None);
            info!(lease = tenure.lease(), why, "stopped leading");
        }
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        self.end("the election ended");
    }
}

struct Candidate {
    api: Api<Lease>,
    config: Config,
    seen: Option<Seen>,
    /// Whether what we saw may be out of date, so that it must be read again before we write.
    must_read: bool,
    /// Whether our name may stand in the record, also by a write whose answer we never saw.
    maybe_ours: bool,
    failing: bool,
    tenure: Tenure,
}

impl Candidate {
    async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.stand() => {}
        }
        self.tenure.end("stopping");
        if self.maybe_ours {
            self.release().await;
        }
    }

    async fn stand(&mut self) {
        loop {
            let Timing { retry_period, .. } = self.config.timing;
            let began = Instant::now();
            let expires = self.tenure.current.as_ref().map(Leadership::valid_until);
            let patience = began + self.config.timing.request_timeout();
            let limit = expires.map_or(patience, |expires| expires.min(patience));
            match timeout_at(limit, self.attempt()).await {
                Ok(Ok(())) => self.failing = false,
                Ok(Err(error)) => self.report(&error),
                Err(_) => self.report(&"no answer in time"),
            }
            let leads = self.tenure.current.is_some();
            let next = began + if leads { retry_period } else { jittered(retry_period) };
            // Renewed or not, the deadline is kept to the instant, also while waiting for the next try.
            if let Some(expires) = self.tenure.current.as_ref().map(Leadership::valid_until) {
                sleep_until(next.min(expires)).await;
                if Instant::now() >= expires {
                    self.tenure.end("not renewed within the renew deadline");
                }
            }
            sleep_until(next).await;
        }
    }

    /// One look at the record where needed, and one write where allowed.
    async fn attempt(&mut self) -> Result<(), kube::Error> {
        // A failed write shows that someone else wrote: look again at once, but only once.
        for _ in 0..2 {
            if self.must_read {
                self.read().await?;
            }
            let duration = Duration::from_secs(self.config.timing.lease_seconds.into());
            let verdict = self
                .seen
                .as_ref()
                .map_or(Verdict::Free, |seen| seen.verdict(&self.config.identity, duration, Instant::now()));
            if let Verdict::HeldBy(holder) = verdict {
                debug!(lease = self.config.name, holder, "standing by");
                self.tenure.end("another holder took the lease");
                self.must_read = true;
                return Ok(());
            }
            let sent = Instant::now();
            self.must_read = true;
            self.maybe_ours = true;
            match self.write(&claim(self.seen.as_ref(), &self.config, Timestamp::now())).await {
                Ok(lease) => {
                    self.seen = Some(Seen::update(self.seen.take(), lease, Instant::now()));
                    self.must_read = false;
                    self.tenure.renewed(&self.config, sent + self.config.timing.renew_deadline);
                    return Ok(());
                }
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn read(&mut self) -> Result<(), kube::Error> {
        let lease = self.api.get_opt(&self.config.name).await?;
        let before = self.seen.take();
        self.seen = lease.map(|lease| Seen::update(before, lease, Instant::now()));
        self.must_read = false;
        self.maybe_ours = self.is_ours();
        Ok(())
    }

    fn is_ours(&self) -> bool {
        self.seen.as_ref().and_then(Seen::holder) == Some(self.config.identity.holder())
    }

    async fn write(&self, lease: &Lease) -> Result<Lease, kube::Error> {
        if lease.metadata.resource_version.is_some() {
            self.api.replace(&self.config.name, &PostParams::default(), lease).await
        } else {
            self.api.create(&PostParams::default(), lease).await
        }
    }

    async fn release(&mut self) {
        let limit = Instant::now() + self.config.timing.request_timeout();
        let given_back = timeout_at(limit, self.give_back()).await;
        let lease = &self.config.name;
        match given_back {
            Ok(Ok(())) => info!(lease, "gave the lease back"),
            Ok(Err(error)) => warn!(lease, %error, "could not give the lease back; it expires by itself"),
            Err(_) => warn!(lease, "could not give the lease back in time; it expires by itself"),
        }
    }

    /// A write of ours may have been under way when we stopped: look once more if the version does not match.
    async fn give_back(&mut self) -> Result<(), kube::Error> {
        for _ in 0..2 {
            if self.must_read {
                self.read().await?;
            }
            let Some(seen) = self.seen.as_ref().filter(|_| self.is_ours()) else { return Ok(()) };
            match self.write(&released(seen, Timestamp::now())).await {
                Err(kube::Error::Api(status)) if status.code == 409 => self.must_read = true,
                // It went with its owner.
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
                other => return other.map(|_| ()),
            }
        }
        Ok(())
    }

    /// Loud once, then quiet until it works again.
    fn report(&mut self, error: &dyn std::fmt::Display) {
        let lease = &self.config.name;
        if self.failing {
            debug!(lease, %error, "still cannot read or write the lease");
        } else {
            warn!(lease, %error, "cannot read or write the lease; trying again");
        }
        self.failing = true;
    }
}

/// Candidates that started together shall not ask together.
fn jittered(period: Duration) -> Duration {
    period.mul_f64(rand::rng().random_range(1.0..1.2))
}
