//! One life: a namespace, a kubelet, an operator that is started again when it dies, and what a user does.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use api::EtcdCluster;
use api::conditions::ConditionStatus;
use faults::{Fault, Line};
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use kube::runtime::watcher;
use kube::{Resource, ResourceExt};
use lab::kit::{TestNamespace, bundle_root, shared_name, wait_for, wait_for_all};
use lab::{Lab, Options};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::end::seen;
use crate::kubelet::{Kubelet, NODE};
use crate::life::Step;
use crate::operator::Operator;
use crate::{LIMIT, Outcome};

/// The one cluster of every life.
pub const NAME: &str = "c";
/// Longer than the operator waits before it tries again, or writes what is not urgent.
const QUIET: Duration = Duration::from_millis(2500);
/// Of the threads of all operators of this process.
static PANICS: AtomicUsize = AtomicUsize::new(0);

pub struct World<'a> {
    pub test: &'a TestNamespace<'a>,
    pub folder: TempDir,
    /// Of each step.
    faults: Vec<Fault>,
    line: Mutex<Line>,
    steps: Mutex<Vec<Step>>,
    born: Instant,
    _kubelet: Kubelet,
}

/// An API server and a controller manager, with our CRDs and one node.
pub async fn lab() -> &'static Lab {
    static LAB: OnceCell<Lab> = OnceCell::const_new();
    LAB.get_or_init(|| async {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            hook(panic);
        }));
        let name = format!("{}faults", shared_name());
        let options = Options { quiet: true, controllers: true, ..Options::api_only(&name) };
        let lab = Lab::up(&options).await.unwrap();
        prepare(&lab).await.unwrap();
        lab
    })
    .await
}

async fn prepare(lab: &Lab) -> Outcome {
    let client = lab.client().await?;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let ours = [api::crd::etcd_cluster_crd(), api::crd::etcd_backup_crd(), api::crd::etcd_restore_crd()];
    for crd in ours {
        let (name, force) = (crd.name_any(), PatchParams::apply("test").force());
        crds.patch(&name, &force, &Patch::Apply(&crd)).await?;
        wait_for(&crds, &name, LIMIT, "to be established", |crd| {
            let conditions = crd.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|one| one.type_ == "Established" && one.status == "True")
        })
        .await?;
    }
    let nodes: Api<Node> = Api::all(client);
    let node = serde_json::from_value(json!({"metadata": {"name": NODE}}))?;
    match nodes.create(&PostParams::default(), &node).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        other => drop(other?),
    }
    // Its own thread: it has to live as long as the process, whichever test began it.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(heartbeats());
    });
    Ok(())
}

/// Signs of life of the node, without which the controller manager would give it up.
async fn heartbeats() {
    let name = format!("{}faults", shared_name());
    let nodes: Api<Node> = Api::all(Lab::existing(&name).unwrap().client().await.unwrap());
    loop {
        let now = jiff::Timestamp::now();
        let ready = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": now});
        let patch = Patch::Merge(json!({"status": {"conditions": [ready]}}));
        if let Err(error) = nodes.patch_status(NODE, &PatchParams::default(), &patch).await {
            eprintln!("the node's sign of life: {error}");
        }
        tokio::time::sleep(Duration::from_secs(4)).await;
    }
}

/// A life without faults, in a namespace of its own.
pub async fn lived(prefix: &str, life: impl AsyncFnOnce(&World<'_>) -> Outcome) {
    lived_on(prefix, Duration::ZERO, life).await;
}

/// The same on a node whose kubelet tells so much `late` that a process runs.
pub async fn lived_on(prefix: &str, late: Duration, life: impl AsyncFnOnce(&World<'_>) -> Outcome) {
    let test = TestNamespace::new(lab().await, prefix).await.unwrap();
    let life = test.run(async |test| {
        let world = World::new(test, &[], late)?;
        world.operated(life(&world)).await
    });
    life.await.unwrap();
}

impl<'a> World<'a> {
    pub fn new(test: &'a TestNamespace<'a>, faults: &[Fault], late: Duration) -> Outcome<Self> {
        let folder = TempDir::new()?;
        std::fs::create_dir(folder.path().join("volumes"))?;
        let kubelet = Kubelet::start(test.client.clone(), &test.name, folder.path(), late);
        let line = Mutex::new(Line::new(faults.first().cloned().unwrap_or(Fault::None)));
        let (faults, steps, born) = (faults.to_vec(), Mutex::default(), Instant::now());
        Ok(Self { test, folder, faults, line, steps, born, _kubelet: kubelet })
    }

    /// The number of the step that is under way.
    pub fn step(&self) -> usize {
        self.steps.lock().unwrap().len()
    }

    /// All is at rest: notes what is there, with `more`, and goes on to the next step and its trouble.
    pub async fn end_step(&self, more: impl Serialize) -> Outcome {
        // The operator is done with a pod when it has deleted it; the kubelet may need longer.
        let leaving = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
        let stay = |pods: &[Pod]| !pods.iter().any(leaving);
        wait_for_all(&self.api::<Pod>(), Self::ours(), LIMIT, "no pod to be leaving", stay).await?;
        let seen = json!([seen(self).await?, more]);
        let next = self.faults.get(self.step() + 1).cloned().unwrap_or(Fault::None);
        let book = self.line().turn(next);
        let mut steps = self.steps.lock().unwrap();
        let before: Duration = steps.iter().map(|step| step.took).sum();
        let took = self.born.elapsed().saturating_sub(before);
        steps.push(Step { seen, book, took });
        Ok(())
    }

    pub fn into_steps(self) -> Vec<Step> {
        self.steps.into_inner().unwrap()
    }

    /// This happens while the operator runs.
    pub async fn operated(&self, life: impl Future<Output = Outcome>) -> Outcome {
        let lived = tokio::select! {
            lived = life => lived,
            ended = self.operate() => ended,
        };
        if lived.is_err() {
            self.keep_logs()?;
        }
        lived
    }

    /// What operator and members said, for the folder of what was there.
    fn keep_logs(&self) -> Outcome {
        let kept = bundle_root().join(&self.test.name);
        std::fs::create_dir_all(&kept)?;
        std::fs::copy(self.operator_log(), kept.join("operator.log"))?;
        for pod in self.folder.path().join("pods").read_dir().into_iter().flatten() {
            let pod = pod?;
            let log = pod.path().join("log");
            if log.exists() {
                std::fs::copy(log, kept.join(pod.file_name()).with_extension("log"))?;
            }
        }
        Ok(())
    }

    fn operator_log(&self) -> PathBuf {
        self.folder.path().join("operator.log")
    }

    /// Runs the operator, and another one whenever it dies.
    async fn operate(&self) -> Outcome {
        loop {
            let line = self.line();
            let volumes = self.folder.path().join("volumes");
            let kubeconfig = self.test.lab.kubeconfig();
            let operator =
                Operator::start(&kubeconfig, &self.test.name, &volumes, &self.operator_log(), &line)?;
            line.died().await;
            operator.kill().await?;
            *self.line.lock().unwrap() = line.successor();
        }
    }

    pub fn line(&self) -> Line {
        self.line.lock().unwrap().clone()
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        self.test.api()
    }

    pub async fn create(&self, kind: &str, name: &str, spec: Value) -> Outcome {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(api::GROUP, "v1beta2", kind));
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.test.client.clone(), &self.test.name, &resource);
        let object = DynamicObject::new(name, &resource).data(json!({ "spec": spec }));
        api.create(&PostParams::default(), &object).await?;
        Ok(())
    }

    pub async fn edit(&self, spec: Value) -> Outcome {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.api::<EtcdCluster>().patch(NAME, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub async fn pods(&self) -> Outcome<Vec<Pod>> {
        Ok(self.api::<Pod>().list(&ListParams::default().labels(&Self::selector())).await?.items)
    }

    fn selector() -> String {
        format!("etcd_cluster={NAME},app=etcd")
    }

    /// The status says `size` ready members of `version`, and the operator has nothing left to do.
    pub async fn settled(&self, size: usize, version: &str) -> Outcome {
        let rests = async {
            loop {
                self.says(size, version).await?;
                // Who may fail to look at any moment never rests.
                self.line().calm();
                self.at_rest(1).await?;
                // A look that failed meanwhile was told, and not yet taken back; and a slow machine is not one at rest.
                let now = self.api::<EtcdCluster>().get(NAME).await?;
                if has(&now, size, version) && nothing_is_left(&now) {
                    return Ok(());
                }
            }
        };
        tokio::time::timeout(LIMIT * 2, rests).await.map_err(|_| "its status does not stay as it is")?
    }

    /// The status says `size` ready members of `version`, for the spec of now.
    pub async fn says(&self, size: usize, version: &str) -> Outcome {
        let what = format!("to have {size} ready members of {version}");
        let clusters = self.api::<EtcdCluster>();
        wait_for(&clusters, NAME, LIMIT, &what, |cluster| has(cluster, size, version)).await?;
        Ok(())
    }

    /// Waits until the operator has asked Kubernetes nothing for a while, and meanwhile has looked at members so many
    /// times: then what is there is the end.
    pub async fn at_rest(&self, looks: usize) -> Outcome {
        let asked = || {
            self.line().book(|book| {
                let asks =
                    |request: &String| !request.starts_with("etcd ") && !request.contains("watch=true");
                let looks = |request: &&String| *request == "etcd Status";
                let (all, last) = (book.requests(), book.requests().iter().rposition(asks));
                (last, all[last.unwrap_or(0)..].iter().filter(looks).count())
            })
        };
        let (mut seen, mut since) = (asked().0, Instant::now());
        lab::wait::until("the operator to be at rest", LIMIT, async || {
            let (now, looked) = asked();
            if now != seen || self.line().is_dead() {
                (seen, since) = (now, Instant::now());
            }
            let rests = since.elapsed() > QUIET && looked >= looks;
            Ok(if rests {
                Ok(())
            } else {
                Err(format!("{now:?} was the last request, and {looked} looks since"))
            })
        })
        .await?;
        Ok(())
    }

    pub async fn delete_pod(&self, name: &str) -> Outcome {
        self.api::<Pod>().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Somebody else has taken its place.
    pub async fn replaced(&self, member: &str) -> Outcome {
        wait_for(&self.api::<EtcdCluster>(), NAME, LIMIT, &format!("to be without {member}"), |cluster| {
            let members = cluster.status.clone().unwrap_or_default().members;
            !members.ready.iter().chain(&members.unready).any(|one| one == member)
        })
        .await?;
        Ok(())
    }

    /// Where a member answers clients.
    pub async fn address(&self) -> Outcome<String> {
        let pods = self.pods().await?;
        let ip = pods.iter().find_map(|pod| pod.status.as_ref()?.pod_ip.clone());
        Ok(format!("{}:{}", ip.ok_or("no pod has an address")?, api::names::CLIENT_PORT))
    }

    pub async fn member(&self) -> Outcome<etcd::Member> {
        Ok(etcd::Member::connect(self.address().await?, etcd::Expect::default())?)
    }

    /// Everything that belongs to the cluster is gone.
    pub async fn nothing_left(&self) -> Outcome {
        self.none_left::<Pod>().await?;
        self.none_left::<Service>().await?;
        self.none_left::<PodDisruptionBudget>().await?;
        self.none_left::<PersistentVolumeClaim>().await?;
        self.at_rest(0).await
    }

    /// Kubernetes collects what a deleted cluster owned in its own time.
    async fn none_left<K>(&self) -> Outcome
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Debug
            + Send
            + 'static,
        K::DynamicType: Default,
    {
        let what = format!("every {} of the cluster to be gone", K::kind(&K::DynamicType::default()));
        wait_for_all(&self.api::<K>(), Self::ours(), LIMIT, &what, <[K]>::is_empty).await?;
        Ok(())
    }

    fn ours() -> watcher::Config {
        watcher::Config::default().labels(&Self::selector())
    }
}

fn has(cluster: &EtcdCluster, size: usize, version: &str) -> bool {
    cluster.status.as_ref().is_some_and(|status| {
        status.members.ready.len() == size
            && status.members.unready.is_empty()
            && status.current_version == version
            && status.target_version.is_empty()
            && status.observed_generation == cluster.metadata.generation
    })
}

fn nothing_is_left(cluster: &EtcdCluster) -> bool {
    let mut conditions = cluster.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|one| one.type_ == "Ready" && one.status == ConditionStatus::True)
}

pub fn panics() -> usize {
    PANICS.load(Ordering::Relaxed)
}
