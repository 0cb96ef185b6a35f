//! Every program is really what its name says. Builds what is missing, which takes long the first time.

use std::{io, path::Path, process::Command};

use lab::programs::{EtcdVersion, KUBERNETES_VERSION, Program, Programs, default_cache};

fn printed(program: &Path, words: &[&str]) -> io::Result<String> {
    let output = Command::new(program).args(words).env("ETCDCTL_API", "3").output()?;
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
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
        Program::Kubectl,
    ];
    programs.ensure(&all).unwrap();
    for program in all {
        let words: &[&str] =
            if program == Program::Kubectl { &["version", "--client"] } else { &["--version"] };
        let text = printed(&programs.path(program).unwrap(), words).unwrap();
        assert!(text.contains(&format!("v{KUBERNETES_VERSION}\n")), "{program}: {text}");
    }
}

#[test]
fn every_etcd_says_its_version() {
    let programs = Programs::new(&default_cache().unwrap());
    for version in EtcdVersion::ALL {
        programs.ensure(&version.programs()).unwrap();
        for program in version.programs() {
            let (word, wanted) = match program {
                Program::Etcd(_) => ("--version", format!("etcd Version: {version}\n")),
                _ => ("version", format!("{} version: {version}\n", program.file_name())),
            };
            let text = printed(&programs.path(program).unwrap(), &[word]).unwrap();
            assert!(text.contains(&wanted), "{program}: {text}");
        }
    }
}
