//! Every program is really what its name says. Builds what is missing, which takes long the first time.

use std::process::Command;

use lab::programs::{EtcdVersion, KUBERNETES_VERSION, Program, Programs, default_cache};

fn says(programs: &Programs, program: Program, argument: &str, wanted: &str) {
    let path = programs.path(program).unwrap();
    let output = Command::new(path).arg(argument).env("ETCDCTL_API", "3").output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(
        output.status.success() && text.contains(wanted),
        "{program} {argument}: wanted {wanted}, got {text}"
    );
}

#[test]
fn kubernetes_says_its_version() {
    let programs = Programs::new(&default_cache().unwrap());
    let all = [
        Program::KubeApiserver,
        Program::KubeControllerManager,
        Program::KubeScheduler,
        Program::Kubelet,
        Program::KubeProxy,
    ];
    programs.ensure(&all).unwrap();
    for program in all {
        says(&programs, program, "--version", &format!("v{KUBERNETES_VERSION}"));
    }
    let client = Command::new(programs.path(Program::Kubectl).unwrap())
        .args(["version", "--client"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&client.stdout).contains(&format!("v{KUBERNETES_VERSION}")));
}

#[test]
fn every_etcd_says_its_version() {
    let programs = Programs::new(&default_cache().unwrap());
    let all: Vec<_> = EtcdVersion::ALL.into_iter().flat_map(EtcdVersion::programs).collect();
    programs.ensure(&all).unwrap();
    for program in all {
        match program {
            Program::Etcd(version) => {
                says(&programs, program, "--version", &format!("etcd Version: {version}\n"))
            }
            Program::Etcdctl(version) => {
                says(&programs, program, "version", &format!("etcdctl version: {version}\n"))
            }
            Program::Etcdutl(version) => {
                says(&programs, program, "version", &format!("etcdutl version: {version}\n"))
            }
            _ => unreachable!(),
        }
    }
}
