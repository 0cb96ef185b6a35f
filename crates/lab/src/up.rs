//! From nothing to a cluster that answers; run again, it repairs only what is missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Node as KubeNode;
use kube::api::{Api, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::control::{CONTROL_ETCD, Control, processes};
use crate::error::{At as _, Error, Result};
use crate::images::{Images, Recipe};
use crate::layout::Layout;
use crate::node::Node;
use crate::programs::{EtcdVersion, Program, Programs, default_cache};
use crate::state::{self, Lock, Wanted};
use crate::wait::until;
use crate::{Lab, addons, net, packages, pki, preflight};

/// What a lab should be.
#[derive(Clone, Debug)]
pub struct Options {
    pub name: String,
    /// None: an API-only lab, etcd and kube-apiserver and nothing else.
    pub nodes: u8,
    /// An API-only lab may have the controller manager, too; a full one always has.
    pub controllers: bool,
    pub subnet: Option<u8>,
    /// The etcd versions whose images the registry holds.
    pub etcd: Vec<EtcdVersion>,
    /// Says nothing while all goes well: for tests, which join a lab many times.
    pub quiet: bool,
}

impl Options {
    pub fn full(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            nodes: 3,
            controllers: true,
            subnet: None,
            etcd: EtcdVersion::ALL.to_vec(),
            quiet: false,
        }
    }

    pub fn api_only(name: &str) -> Self {
        Self { nodes: 0, controllers: false, etcd: vec![], ..Self::full(name) }
    }

    /// A lab builds only what it is asked to use.
    fn programs(&self) -> Vec<Program> {
        let mut all = vec![Program::KubeApiserver, Program::Etcd(CONTROL_ETCD), Program::Kubectl];
        if self.controllers {
            all.push(Program::KubeControllerManager);
        }
        if self.nodes > 0 {
            all.extend([
                Program::KubeScheduler,
                Program::Kubelet,
                Program::KubeProxy,
                Program::Pause,
                Program::Versitygw,
            ]);
            all.extend(Recipe::standard(&self.etcd).into_iter().flat_map(Recipe::programs));
        }
        all
    }
}

/// Says what it is doing, a line for each step.
struct Steps {
    started: Instant,
    quiet: bool,
}

impl Steps {
    fn say(&self, what: &str) {
        if !self.quiet {
            eprintln!("{:6.1} s  {what}", self.started.elapsed().as_secs_f64());
        }
    }
}

/// Brings the lab up and gives it once everything answers.
pub async fn up(options: &Options) -> Result<Lab> {
    let cache = default_cache()?;
    preflight::check(&options.name, options.nodes, &cache)?;
    let steps = Steps { started: Instant::now(), quiet: options.quiet };
    packages::ensure()?;
    preflight::network()?;
    let lock = Lock::of_lab(&options.name)?;
    let wanted = Wanted {
        name: options.name.clone(),
        nodes: options.nodes,
        controllers: options.controllers,
        subnet: options.subnet,
    };
    let lab = Lab { layout: state::load_or_create(&wanted)?, programs: Programs::new(&cache) };
    let done = bring_up(&lab, options, &cache, &steps).await;
    drop(lock);
    done.map(|()| lab)
}

async fn bring_up(lab: &Lab, options: &Options, cache: &Path, steps: &Steps) -> Result<()> {
    let Lab { layout, programs } = lab;
    steps.say("programs");
    programs.ensure(&options.programs())?;
    steps.say("certificates and network");
    preflight::raise_limits()?;
    pki::ensure(layout)?;
    net::ensure(layout)?;
    lab.mend()?;
    if !layout.is_full() {
        start_control(layout, programs, steps).await?;
        return Ok(());
    }
    steps.say("images");
    let pause = publish_images(layout, options, cache, programs)?;
    let (client, ()) =
        tokio::try_join!(start_control(layout, programs, steps), prepare_nodes(layout, programs, &pause))?;
    steps.say(&format!("{} nodes, DNS and volumes", layout.nodes));
    for node in Node::all(layout) {
        node.join(programs)?;
    }
    addons::apply(layout, &client).await?;
    nodes_ready(layout, &client).await?;
    steps.say("nodes are Ready");
    addons::ready(layout, &client).await?;
    steps.say("DNS answers, volumes can be had");
    Ok(())
}

/// Fills the registry's folder, and gives the archive of the one image that nodes get by hand: the pause container's.
fn publish_images(lab: &Layout, options: &Options, cache: &Path, programs: &Programs) -> Result<PathBuf> {
    let images = Images::new(cache);
    let all = Recipe::standard(&options.etcd)
        .into_iter()
        .map(|r| r.image(programs))
        .collect::<Result<Vec<_>, _>>()?;
    images.publish(&all, &lab.registry_store())?;
    let pause = lab.pause_archive();
    if !pause.exists() {
        let new = pause.with_extension("new");
        images.export(&Recipe::Pause.image(programs)?, &new)?;
        fs::rename(&new, &pause).at(&pause)?;
    }
    Ok(pause)
}

async fn start_control(lab: &Layout, programs: &Programs, steps: &Steps) -> Result<Client> {
    steps.say("control plane");
    for component in
        Control::of(lab).into_iter().filter(|c| *c != Control::ControllerManager && *c != Control::Scheduler)
    {
        component.ensure(lab, programs)?;
    }
    let client = client(lab).await?;
    until("the API server", Duration::from_mins(2), async || {
        for component in [Control::Etcd, Control::ApiServer] {
            processes(lab).check(component.name())?;
        }
        Ok(readyz(&client).await)
    })
    .await?;
    for component in Control::of(lab) {
        component.ensure(lab, programs)?;
    }
    for component in [Control::Registry, Control::S3].into_iter().filter(|_| lab.is_full()) {
        until(component.name(), Duration::from_mins(2), async || {
            processes(lab).check(component.name())?;
            Ok(component.answers(lab).then_some(()).ok_or("no connection"))
        })
        .await?;
    }
    steps.say("the API server answers");
    Ok(client)
}

/// What the API server says when it is asked whether it is ready.
pub async fn readyz(client: &Client) -> Result<String> {
    let request = http::Request::get("/readyz").body(vec![]).map_err(|e| Error::other("/readyz", e))?;
    Ok(client.request_text(request).await?)
}

async fn prepare_nodes(lab: &Layout, programs: &Programs, pause: &Path) -> Result<()> {
    try_join_all(Node::all(lab).map(async |node| node.prepare(programs, pause).await)).await.map(drop)
}

async fn nodes_ready(lab: &Layout, client: &Client) -> Result<()> {
    let api: Api<KubeNode> = Api::all(client.clone());
    until("every node Ready", Duration::from_mins(3), async || {
        for node in Node::all(lab) {
            processes(lab).check(&node.component(crate::node::Agent::Kubelet))?;
        }
        let ready: Vec<String> = api
            .list(&ListParams::default())
            .await?
            .items
            .iter()
            .filter(|n| is_ready(n))
            .filter_map(|n| n.metadata.name.clone())
            .collect();
        Ok(lab.node_names().all(|n| ready.contains(&n)).then_some(()).ok_or(format!("Ready: {ready:?}")))
    })
    .await
}

pub fn is_ready(node: &KubeNode) -> bool {
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
}

/// A client with the administrator's rights.
pub async fn client(lab: &Layout) -> Result<Client> {
    Ok(Client::try_from(config(&lab.kubeconfig()).await?)?)
}

pub async fn config(kubeconfig: &PathBuf) -> Result<Config> {
    let file =
        Kubeconfig::read_from(kubeconfig).map_err(|e| Error::other(kubeconfig.display().to_string(), e))?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .map_err(|e| Error::other("kubeconfig", e))
}
