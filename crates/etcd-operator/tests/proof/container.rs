//! One container of a pod, as a process of this machine: the pod's own command, with the pod's paths and addresses.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use lab::programs::{EtcdVersion, Program, Programs, default_cache};
use tokio::process::{Child, Command};

use crate::{Outcome, dns};

/// Where a pod's containers see what.
pub struct Place {
    pub ip: Ipv4Addr,
    pub log: PathBuf,
    /// Paths inside, and the folders that they are here.
    pub mounts: Vec<(String, PathBuf)>,
}

/// Ends with its parent, sees our DNS, and has a termination log.
const SANDBOX: &str = r#"
mount --bind "$1" /etc/resolv.conf && mount -t tmpfs tmpfs /dev && touch /dev/null /dev/termination-log &&
mount --bind "$2" /dev/termination-log && shift 2 && exec "$@""#;

/// Starts it; the last words of the one before are gone.
pub fn start(pod: &Pod, container: &Container, place: &Place) -> Outcome<Child> {
    let env = environment(pod, container);
    let mut command = container.command.clone().unwrap_or_default().into_iter();
    let program = program(&command.next().unwrap_or_default(), container)?;
    let arguments = command.map(|argument| inside(expanded(argument, &env), place));
    let log = File::options().create(true).append(true).open(&place.log)?;
    File::create(words(place))?;
    let mut process = Command::new("setpriv");
    process
        .args(["--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private", "sh", "-c", SANDBOX])
        .arg("container")
        .arg(dns::resolver())
        .arg(words(place))
        .arg(program)
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .envs(env)
        // Data of a test need not survive a power cut.
        .env("ETCD_UNSAFE_NO_FSYNC", "true")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true);
    Ok(process.spawn()?)
}

/// What the container said when it ended.
pub fn last_words(place: &Place) -> Outcome<String> {
    let said = fs::read_to_string(words(place))?;
    if !said.is_empty() {
        return Ok(said);
    }
    let log = fs::read_to_string(&place.log)?;
    Ok(log.lines().next_back().unwrap_or_default().chars().take(1000).collect())
}

fn words(place: &Place) -> PathBuf {
    place.log.with_extension("words")
}

/// The program that the image has under this path.
fn program(path: &str, container: &Container) -> Outcome<PathBuf> {
    let name = Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if name == "etcd-operator" {
        return Ok(env!("CARGO_BIN_EXE_etcd-operator").into());
    }
    let image = container.image.as_deref().unwrap_or_default();
    let version: EtcdVersion = image.rsplit(':').next().unwrap_or_default().parse()?;
    let program = match name {
        "etcdctl" => Program::Etcdctl(version),
        "etcdutl" => Program::Etcdutl(version),
        _ => Program::Etcd(version),
    };
    Ok(Programs::new(&default_cache()?).path(program)?)
}

fn environment(pod: &Pod, container: &Container) -> BTreeMap<String, String> {
    let of = |variable: &k8s_openapi::api::core::v1::EnvVar| {
        let field = variable.value_from.as_ref().and_then(|from| from.field_ref.as_ref());
        let annotation = field.and_then(|field| {
            let key = field.field_path.strip_prefix("metadata.annotations['")?.strip_suffix("']")?;
            pod.annotations().get(key).cloned()
        });
        (variable.name.clone(), variable.value.clone().or(annotation).unwrap_or_default())
    };
    container.env.iter().flatten().map(of).collect()
}

fn expanded(argument: String, env: &BTreeMap<String, String>) -> String {
    env.iter().fold(argument, |argument, (name, value)| argument.replace(&format!("$({name})"), value))
}

/// All pods of this machine share its ports and its files.
fn inside(argument: String, place: &Place) -> String {
    let argument = argument.replace("0.0.0.0", &place.ip.to_string());
    place
        .mounts
        .iter()
        .fold(argument, |argument, (path, folder)| argument.replace(path, &folder.display().to_string()))
}
