//! A kubelet for one namespace, and the scheduler before it: it binds pods to the one node, runs them as processes, and
//! says in their status what became of them.

use std::collections::HashMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use api::labels;
use api::names::{CLIENT_PORT, PEER_PORT};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Child;
use tokio::task::JoinHandle;

use crate::container::{Place, last_words, start};
use crate::{Outcome, dns};

pub const NODE: &str = "node";
const PROBE: Duration = Duration::from_millis(100);
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// Runs until it is dropped, and its pods with it.
pub struct Kubelet(JoinHandle<()>);

impl Kubelet {
    /// Claims are folders of `volumes`, by name. That a process runs is told so much `late`.
    pub fn start(client: Client, namespace: &str, root: &Path, late: Duration) -> Self {
        let pods = Api::namespaced(client, namespace);
        let (namespace, root) = (namespace.to_owned(), root.to_owned());
        let state = State { pods, namespace, root, late, running: HashMap::new(), leaving: HashMap::new() };
        Self(tokio::spawn(state.run()))
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct State {
    pods: Api<Pod>,
    namespace: String,
    root: PathBuf,
    late: Duration,
    running: HashMap<String, Running>,
    /// Names of pods that were told to go, by UID.
    leaving: HashMap<String, String>,
}

struct Running {
    pod: Pod,
    place: Place,
    image: String,
    /// Its first init container waits for the others to list it.
    held: bool,
    child: Option<Child>,
    ended: Option<Instant>,
    restarts: u32,
    ready: bool,
    started: Timestamp,
    init: Vec<Value>,
}

impl State {
    async fn run(mut self) {
        let mut events = watcher(self.pods.clone(), watcher::Config::default()).default_backoff().boxed();
        let mut tick = tokio::time::interval(PROBE);
        loop {
            let done = tokio::select! {
                Some(event) = events.next() => match event {
                    Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => self.sync(pod).await,
                    Ok(watcher::Event::Delete(pod)) => {
                        self.running.remove(&pod.uid().unwrap_or_default());
                        Ok(())
                    }
                    Ok(watcher::Event::Init | watcher::Event::InitDone) => Ok(()),
                    Err(error) => Err(error.into()),
                },
                _ = tick.tick() => self.look().await,
            };
            if let Err(error) = done {
                eprintln!("the kubelet of {}: {error}", self.namespace);
            }
        }
    }

    async fn sync(&mut self, pod: Pod) -> Outcome {
        let (name, uid) = (pod.name_any(), pod.uid().unwrap_or_default());
        if pod.metadata.deletion_timestamp.is_some() {
            self.running.remove(&uid);
            self.leaving.insert(uid, name);
            return self.let_go().await;
        }
        let spec = pod.spec.clone().unwrap_or_default();
        if spec.node_name.is_none() {
            return self.bind(&name).await;
        }
        if pod.labels().get(labels::APP).is_some_and(|app| app == labels::APP_IMAGE_CHECK) {
            return self.check_image(&pod).await;
        }
        let Some(etcd) = spec.containers.first() else { return Ok(()) };
        let image = etcd.image.clone().unwrap_or_default();
        if let Some(running) = self.running.get_mut(&uid) {
            running.pod = pod;
            if running.image != image {
                running.image = image;
                running.child = None;
                running.ended = None;
                running.restarts += 1;
                return self.restart(&uid).await;
            }
            return Ok(());
        }
        let place = self.place(&pod)?;
        let mut init = Vec::new();
        // The first one waits for DNS, which is always there, and for the others: see `look`.
        for container in spec.init_containers.iter().flatten().skip(1) {
            let status = start(&pod, container, &place)?.wait().await?;
            let ended = json!({"exitCode": status.code().unwrap_or(137), "message": last_words(&place)?});
            init.push(json!({
                "name": container.name, "image": "", "imageID": "", "ready": status.success(), "restartCount": 0,
                "state": {"terminated": ended},
            }));
            if !status.success() {
                return Err(format!("{name} {}: {ended}", container.name).into());
            }
        }
        let started = Timestamp::now();
        let (held, child, ended) = (true, None, None);
        let running =
            Running { pod, place, image, held, child, ended, restarts: 0, ready: false, started, init };
        let status = running.status(None);
        self.running.insert(uid, running);
        self.say(&name, status).await
    }

    /// Tries until each is gone: a write of somebody else's may come between.
    async fn let_go(&mut self) -> Outcome {
        for (uid, name) in self.leaving.clone() {
            if self.pods.get_opt(&name).await?.is_none_or(|pod| pod.uid().as_ref() != Some(&uid)) {
                self.leaving.remove(&uid);
                continue;
            }
            let preconditions = Some(Preconditions { uid: Some(uid), ..Preconditions::default() });
            let now = DeleteParams { preconditions, ..DeleteParams::default().grace_period(0) };
            gone_is_fine(self.pods.delete(&name, &now).await.map(drop))?;
        }
        Ok(())
    }

    async fn bind(&self, name: &str) -> Outcome {
        let binding = Binding {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            target: ObjectReference {
                kind: Some("Node".into()),
                name: Some(NODE.into()),
                ..Default::default()
            },
        };
        let params = PostParams::default();
        let bound = self.pods.create_subresource::<_, Value>("binding", name, &params, &binding).await;
        gone_is_fine(bound.map(drop))
    }

    /// What the throw-away pod of an upgrade asks: does this image run here?
    async fn check_image(&self, pod: &Pod) -> Outcome {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
        let (Some("Pending"), Some(container)) = (phase, container) else { return Ok(()) };
        let ended = start(pod, container, &self.place(pod)?)?.wait().await?;
        let phase = if ended.success() { "Succeeded" } else { "Failed" };
        self.say(&pod.name_any(), json!({"phase": phase})).await
    }

    fn place(&self, pod: &Pod) -> Outcome<Place> {
        let (name, spec) = (pod.name_any(), pod.spec.clone().unwrap_or_default());
        let host = format!("{name}.{}.{}.svc", spec.subdomain.unwrap_or_default(), self.namespace);
        let own = self.root.join("pods").join(pod.uid().unwrap_or_default());
        let mut folders = HashMap::new();
        for volume in spec.volumes.iter().flatten() {
            let folder = match &volume.persistent_volume_claim {
                Some(claim) => self.root.join("volumes").join(&claim.claim_name),
                None => own.join(&volume.name),
            };
            fs::create_dir_all(&folder)?;
            folders.insert(volume.name.clone(), folder);
        }
        fs::create_dir_all(&own)?;
        let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
        let mounts = containers.flat_map(|container| container.volume_mounts.iter().flatten());
        let mounts = mounts.filter(|mount| mount.mount_path != "/tmp");
        let mut mounts: Vec<_> = mounts
            .filter_map(|mount| Some((mount.mount_path.clone(), folders.get(&mount.name)?.clone())))
            .collect();
        mounts.sort();
        mounts.dedup();
        Ok(Place { ip: dns::address(&host), log: own.join("log"), mounts })
    }

    async fn restart(&mut self, uid: &str) -> Outcome {
        let Some(running) = self.running.get_mut(uid) else { return Ok(()) };
        let spec = running.pod.spec.clone().unwrap_or_default();
        let Some(etcd) = spec.containers.first() else { return Ok(()) };
        running.child = Some(start(&running.pod, etcd, &running.place)?);
        running.started = Timestamp::now();
        running.ready = false;
        if !self.late.is_zero() {
            return Ok(());
        }
        let (name, status) = (running.pod.name_any(), running.status(None));
        self.say(&name, status).await
    }

    /// Looks who ended, and who became ready.
    async fn look(&mut self) -> Outcome {
        let mut said = Vec::new();
        let mut again = Vec::new();
        for (uid, running) in &mut self.running {
            if running.held {
                running.held = !is_listed(&running.pod).await;
                again.extend((!running.held).then(|| uid.clone()));
            } else if let Some(child) = &mut running.child
                && let Some(ended) = child.try_wait()?
            {
                (running.child, running.ready, running.ended) = (None, false, Some(Instant::now()));
                let ended =
                    json!({"exitCode": ended.code().unwrap_or(137), "message": last_words(&running.place)?});
                said.push((running.pod.name_any(), running.status(Some(ended))));
            } else if running.ended.is_some_and(|ended| ended.elapsed() > RESTART_AFTER) {
                running.restarts += 1;
                running.ended = None;
                again.push(uid.clone());
            } else if running.child.is_some()
                && !running.ready
                && running.started + self.late <= Timestamp::now()
                && is_healthy(running.place.ip).await
            {
                running.ready = true;
                said.push((running.pod.name_any(), running.status(None)));
            }
        }
        for uid in again {
            self.restart(&uid).await?;
        }
        for (name, status) in said {
            self.say(&name, status).await?;
        }
        self.let_go().await
    }

    async fn say(&self, name: &str, status: Value) -> Outcome {
        let patch = Patch::Merge(json!({ "status": status }));
        gone_is_fine(self.pods.patch_status(name, &PatchParams::default(), &patch).await.map(drop))
    }
}

impl Running {
    fn status(&self, ended: Option<Value>) -> Value {
        let state = match ended {
            Some(ended) => json!({"terminated": ended}),
            None => json!({"running": {"startedAt": self.started}}),
        };
        let ready = if self.ready { "True" } else { "False" };
        if self.held {
            return json!({"phase": "Pending", "podIP": self.place.ip, "podIPs": [{"ip": self.place.ip}]});
        }
        json!({
            "phase": "Running", "podIP": self.place.ip, "podIPs": [{"ip": self.place.ip}],
            "conditions": [{"type": "Ready", "status": ready}],
            "initContainerStatuses": self.init,
            "containerStatuses": [{
                "name": "etcd", "image": self.image, "imageID": "", "ready": self.ready,
                "restartCount": self.restarts, "state": state,
            }],
        })
    }
}

/// The readiness probe of a member.
async fn is_healthy(ip: Ipv4Addr) -> bool {
    get(ip, CLIENT_PORT, "/health").await.is_some()
}

/// What the init container of a member waits for: that some other lists exactly the members that this one was told of.
async fn is_listed(pod: &Pod) -> bool {
    let told = pod.annotations().get(api::annotations::INITIAL_CLUSTER).cloned().unwrap_or_default();
    if !told.contains(',') {
        return true;
    }
    let mut urls: Vec<&str> = told.split(',').filter_map(|peer| Some(peer.split_once('=')?.1)).collect();
    urls.sort_unstable();
    for url in &urls {
        let host = url.trim_start_matches("http://").split(':').next().unwrap_or_default();
        let answer = get(dns::address(host), PEER_PORT, "/members").await.unwrap_or_default();
        let listed: Vec<Value> = serde_json::from_str(&answer).unwrap_or_default();
        let mut listed: Vec<&str> =
            listed.iter().filter_map(|member| member["peerURLs"][0].as_str()).collect();
        listed.sort_unstable();
        if listed == urls {
            return true;
        }
    }
    false
}

/// The answer, if it is a good one.
async fn get(ip: Ipv4Addr, port: u16, path: &str) -> Option<String> {
    let ask = async {
        let mut stream = TcpStream::connect((ip, port)).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = tokio::time::timeout(Duration::from_millis(500), ask).await.ok()?.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.contains(" 200 ").then(|| body.to_owned())
}

fn gone_is_fine(done: Result<(), kube::Error>) -> Outcome {
    match done {
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        other => Ok(other?),
    }
}
