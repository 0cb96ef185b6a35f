//! One member that a fault strikes, and the proof that it struck nobody else.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use domain::{ClusterId, MemberId};
use etcd::{Expect, Member};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::ListParams;
use lab::wait::until;
use nix::sys::signal::Signal;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Cluster, LIMIT, Outcome};

pub const ETCD: &str = "etcd";
pub const DATA: &str = "etcd-data";

/// Who is struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Seed,
    Leader,
    /// Neither seed nor leader, if there is such a one.
    Other,
}

/// What shows that a pod was left alone: its UID, how often etcd was started in it, and the UID of its volume.
type Footprint = (String, i32, Option<String>);

pub struct Victim {
    pub name: String,
    pub pod: Pod,
    pub id: MemberId,
    pub votes: bool,
    cluster_id: ClusterId,
    before: BTreeMap<String, Footprint>,
}

impl Cluster<'_> {
    pub async fn victim(&self, who: Who) -> Outcome<Victim> {
        let status = self.get().await?.status.unwrap_or_default();
        let names = self.pod_names().await?;
        let name = match who {
            Who::Seed => status.seed,
            Who::Leader => status.leader,
            Who::Other => names
                .into_iter()
                .find(|name| *name != status.seed && *name != status.leader)
                .ok_or("there is no member beside seed and leader")?,
        };
        self.victim_named(&name).await
    }

    pub async fn victim_named(&self, name: &str) -> Outcome<Victim> {
        let pod = self.pods_api().get(name).await?;
        let member = Member::connect(client_address(&pod)?, Expect::default())?;
        let status = member.status().await?;
        let (id, cluster_id) = (status.identity.member, status.identity.cluster);
        let before = self.footprints().await?;
        Ok(Victim { name: name.to_owned(), pod, id, votes: !status.learner, cluster_id, before })
    }

    pub async fn footprints(&self) -> Outcome<BTreeMap<String, Footprint>> {
        let selector = ListParams::default().labels(&format!("etcd_cluster={}", self.name));
        let claims = self.test.api::<PersistentVolumeClaim>().list(&selector).await?;
        let claim =
            |name: &str| claims.iter().find(|claim| claim.name_any() == name).and_then(ResourceExt::uid);
        let pods = self.pods().await?;
        let footprint = |pod: &Pod| (pod.uid().unwrap_or_default(), restarts(pod), claim(&pod.name_any()));
        Ok(pods.iter().map(|pod| (pod.name_any(), footprint(pod))).collect())
    }
}

impl Victim {
    /// All processes of its container get the signal.
    pub fn signal(&self, cluster: &Cluster<'_>, signal: Signal) -> Outcome {
        Ok(cluster.test.lab.signal_container(&self.pod, ETCD, signal)?)
    }

    /// Its disk loses everything, and its process ends. From then on, whatever it acknowledges is lost: see [`Knocks`].
    pub fn wipe(&self, cluster: &Cluster<'_>) -> Outcome<Knocks> {
        cluster.test.lab.wipe(&self.pod, DATA)?;
        self.signal(cluster, Signal::SIGKILL)?;
        self.knock()
    }

    pub fn corrupt_wal(&self, cluster: &Cluster<'_>) -> Outcome {
        cluster.test.lab.corrupt(&self.pod, DATA, "data/member/wal")?;
        self.signal(cluster, Signal::SIGKILL)
    }

    /// Its pod is on its way out, or its process restarts.
    pub async fn goes(&self, cluster: &Cluster<'_>) -> Outcome<bool> {
        let now = cluster.pods_api().get_opt(&self.name).await?;
        let stays =
            now.is_some_and(|now| now.metadata.deletion_timestamp.is_none() && now.uid() == self.pod.uid());
        Ok(!stays || cluster.victim_named(&self.name).await.is_err())
    }

    /// Clients that insist on this very member.
    pub fn knock(&self) -> Outcome<Knocks> {
        Knocks::start(&client_address(&self.pod)?, self.cluster_id, self.id)
    }

    /// Another member stands in its place, and all others are as they were.
    pub async fn was_replaced(&self, cluster: &Cluster<'_>) -> Outcome {
        let now = cluster.footprints().await?;
        if now.contains_key(&self.name) || now.len() != self.before.len() {
            return Err(format!("{} is still there: {now:?}", self.name).into());
        }
        self.others_spared(&now)
    }

    /// It is there again in the same pod, its process started `restarts` more times.
    pub async fn came_back(&self, cluster: &Cluster<'_>, restarts: i32) -> Outcome {
        let mut expected = self.before.clone();
        expected.entry(self.name.clone()).and_modify(|(_, count, _)| *count += restarts);
        // The kubelet counts a moment after etcd answers.
        until(&format!("{expected:?}"), LIMIT, async || {
            let now = cluster.footprints().await.map_err(|error| lab::Error::other("pods", error))?;
            Ok(if now == expected { Ok(()) } else { Err(format!("{now:?}")) })
        })
        .await?;
        self.is_the_same_member(cluster).await
    }

    /// It is there again in another pod, under the same name, on the same volume, as the same member.
    pub async fn came_back_on_its_volume(&self, cluster: &Cluster<'_>) -> Outcome {
        let now = cluster.footprints().await?;
        let (before, after) = (self.before.get(&self.name), now.get(&self.name));
        let same_volume =
            matches!((before, after), (Some(b), Some(a)) if b.0 != a.0 && b.2 == a.2 && b.2.is_some());
        if !same_volume {
            return Err(format!("{}: {before:?} became {after:?}", self.name).into());
        }
        self.others_spared(&now)?;
        self.is_the_same_member(cluster).await
    }

    async fn is_the_same_member(&self, cluster: &Cluster<'_>) -> Outcome {
        let id = cluster.victim_named(&self.name).await?.id;
        if id == self.id { Ok(()) } else { Err(format!("{} was {}, and is {id}", self.name, self.id).into()) }
    }

    fn others_spared(&self, now: &BTreeMap<String, Footprint>) -> Outcome {
        for (name, before) in self.before.iter().filter(|(name, _)| **name != self.name) {
            if now.get(name) != Some(before) {
                return Err(format!("{name} was touched: {before:?} became {:?}", now.get(name)).into());
            }
        }
        Ok(())
    }
}

/// Writes sent to one member alone, all the time.
pub struct Knocks {
    stop: CancellationToken,
    task: JoinHandle<(usize, Vec<Duration>)>,
}

impl Knocks {
    fn start(address: &str, cluster: ClusterId, member: MemberId) -> Outcome<Self> {
        let expect = Expect { cluster: Some(cluster), member: Some(member) };
        let link = Member::connect(address, expect)?.with_deadline(Duration::from_secs(1));
        let (stop, began) = (CancellationToken::new(), Instant::now());
        let until = stop.clone();
        let task = tokio::spawn(async move {
            let (mut tried, mut taken) = (0, Vec::new());
            while !until.is_cancelled() {
                tried += 1;
                if link.put(format!("knock/{tried}"), "let me in").await.is_ok() {
                    taken.push(began.elapsed());
                }
                tokio::select! {
                    () = until.cancelled() => {}
                    () = tokio::time::sleep(Duration::from_millis(20)) => {}
                }
            }
            (tried, taken)
        });
        Ok(Self { stop, task })
    }

    /// Not one write may have been acknowledged.
    pub async fn none_taken(self) -> Outcome {
        self.stop.cancel();
        let (tried, taken) = self.task.await?;
        println!("{} of {tried} writes to the lost member were acknowledged", taken.len());
        if tried > 0 && taken.is_empty() {
            Ok(())
        } else {
            Err(format!("acknowledged after {taken:?}").into())
        }
    }
}

pub fn client_address(pod: &Pod) -> Outcome<String> {
    let ip = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
    Ok(format!("{}:2379", ip.ok_or("the pod has no address")?))
}

fn restarts(pod: &Pod) -> i32 {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    containers.filter(|container| container.name == ETCD).map(|container| container.restart_count).sum()
}
