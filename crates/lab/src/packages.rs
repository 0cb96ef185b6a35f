//! What the lab takes from Debian, and how it gets there.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    #[error("{path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "the lab needs Debian's packages {packages}, and there is no apt-get here ({source}): install them yourself"
    )]
    NoApt { packages: String, source: io::Error },
    #[error("apt-get {verb} failed, for {packages}; its last lines:\n{output}")]
    Apt { verb: &'static str, packages: String, output: String },
}

/// Each package, with a file that shows that it is there.
const NEEDED: [(&str, &str); 19] = [
    ("containerd", "usr/bin/containerd"),
    ("runc", "usr/sbin/runc"),
    ("containernetworking-plugins", "usr/lib/cni/bridge"),
    ("docker-registry", "usr/bin/docker-registry"),
    ("iproute2", "bin/ip"),
    ("nftables", "usr/sbin/nft"),
    ("iptables", "usr/sbin/iptables"),
    ("conntrack", "usr/sbin/conntrack"),
    // For images. Not just any busybox: it must be the static one.
    ("busybox-static", "var/lib/dpkg/info/busybox-static.list"),
    ("nginx", "usr/sbin/nginx"),
    ("ca-certificates", "etc/ssl/certs/ca-certificates.crt"),
    // For Go, where it has to be fetched.
    ("curl", "usr/bin/curl"),
    ("unzip", "usr/bin/unzip"),
    // For the pause program and nginx.
    ("gcc", "usr/bin/gcc"),
    ("libc6-dev", "usr/include/stdlib.h"),
    ("make", "usr/bin/make"),
    ("libpcre2-dev", "usr/include/pcre2.h"),
    ("libssl-dev", "usr/include/openssl/ssl.h"),
    ("zlib1g-dev", "usr/include/zlib.h"),
];

/// Installs what is missing. Blocks; says so on stderr when there is something to do.
pub fn ensure() -> Result<(), PackageError> {
    Machine { root: "/".into(), apt: "apt-get".into() }.ensure()
}

struct Machine {
    root: PathBuf,
    apt: PathBuf,
}

impl Machine {
    fn ensure(&self) -> Result<(), PackageError> {
        if self.missing().is_empty() {
            return Ok(());
        }
        // Two labs that start at once would find apt's own locks taken.
        let path = self.root.join("run/etcd-operator-lab-packages.lock");
        let lock = File::create(&path).map_err(at(&path))?;
        lock.lock().map_err(at(&path))?;
        let missing = self.missing();
        if missing.is_empty() {
            return Ok(());
        }
        eprintln!("installing Debian's {}", missing.join(", "));
        let _quiet = NoDaemons::new(&self.root)?;
        self.apt("update", &[], &missing)?;
        self.apt("install", &["--yes", "--no-install-recommends"], &missing)
    }

    fn missing(&self) -> Vec<&'static str> {
        NEEDED
            .into_iter()
            .filter(|(_, file)| !self.root.join(file).exists())
            .map(|(package, _)| package)
            .collect()
    }

    fn apt(&self, verb: &'static str, options: &[&str], packages: &[&str]) -> Result<(), PackageError> {
        let mut apt = Command::new(&self.apt);
        apt.env("DEBIAN_FRONTEND", "noninteractive");
        apt.args(["-o", "Acquire::Retries=3", "-o", "DPkg::Lock::Timeout=300", verb]).args(options);
        if verb == "install" {
            apt.args(packages);
        }
        let names = packages.join(", ");
        let done = apt.output().map_err(|source| PackageError::NoApt { packages: names.clone(), source })?;
        if done.status.success() {
            return Ok(());
        }
        let text = [done.stdout, done.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let output = lines[lines.len().saturating_sub(10)..].join("\n");
        Err(PackageError::Apt { verb, packages: names, output })
    }
}

/// While it lives, packages that bring a daemon install without starting it: Debian asks this file first.
struct NoDaemons {
    path: PathBuf,
    ours: bool,
}

impl NoDaemons {
    const SCRIPT: &str =
        "#!/bin/sh\n# Written by the etcd operator's lab while it installs packages.\nexit 101\n";

    fn new(root: &Path) -> Result<Self, PackageError> {
        let path = root.join("usr/sbin/policy-rc.d");
        // One that is there has its reasons, unless it was left by a lab that was killed.
        let ours = fs::read(&path).map_or(true, |text| text == Self::SCRIPT.as_bytes());
        if ours {
            fs::write(&path, Self::SCRIPT).map_err(at(&path))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(at(&path))?;
        }
        Ok(Self { path, ours })
    }
}

impl Drop for NoDaemons {
    fn drop(&mut self) {
        if self.ours
            && let Err(error) = fs::remove_file(&self.path)
        {
            eprintln!("{}: {error}; remove it by hand", self.path.display());
        }
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> PackageError {
    |source| PackageError::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with every package but runc, and an apt-get that does as `script` says.
    fn machine(folder: &Path, script: &str) -> Machine {
        for file in NEEDED.iter().map(|(_, file)| *file).chain(["run/x", "usr/sbin/x"]) {
            fs::create_dir_all(folder.join(file).parent().unwrap()).unwrap();
            fs::write(folder.join(file), "").unwrap();
        }
        fs::remove_file(folder.join("usr/sbin/runc")).unwrap();
        let apt = folder.join("apt-get");
        fs::write(&apt, format!("#!/bin/sh\ncd {}\n{script}\n", folder.display())).unwrap();
        fs::set_permissions(&apt, fs::Permissions::from_mode(0o755)).unwrap();
        Machine { root: folder.to_owned(), apt }
    }

    #[test]
    fn installs_what_is_missing_and_starts_no_daemon() {
        let folder = tempfile::tempdir().unwrap();
        let script = "echo $5 $6 $7 $8 $9 $(usr/sbin/policy-rc.d; echo $?) >>log; [ $5 = update ] || touch usr/sbin/runc";
        let machine = machine(folder.path(), script);
        assert_eq!(machine.missing(), ["runc"]);
        machine.ensure().unwrap();
        machine.ensure().unwrap();
        let log = fs::read_to_string(folder.path().join("log")).unwrap();
        assert_eq!(log, "update 101\ninstall --yes --no-install-recommends runc 101\n");
        assert!(!folder.path().join("usr/sbin/policy-rc.d").exists());
    }

    #[test]
    fn a_policy_of_the_machine_stays() {
        let folder = tempfile::tempdir().unwrap();
        let machine = machine(folder.path(), "touch usr/sbin/runc");
        let policy = folder.path().join("usr/sbin/policy-rc.d");
        fs::write(&policy, "#!/bin/sh\nexit 0\n").unwrap();
        machine.ensure().unwrap();
        assert_eq!(fs::read_to_string(policy).unwrap(), "#!/bin/sh\nexit 0\n");
    }

    #[test]
    fn a_failure_says_what_apt_said() {
        let folder = tempfile::tempdir().unwrap();
        let mut machine = machine(folder.path(), "echo 'E: Unable to locate package runc'; exit 100");
        let error = machine.ensure().unwrap_err().to_string();
        assert!(
            error.contains("apt-get update failed, for runc") && error.contains("Unable to locate"),
            "{error}"
        );
        machine.apt = "/no/such/apt-get".into();
        let error = machine.ensure().unwrap_err().to_string();
        assert!(error.contains("needs Debian's packages runc"), "{error}");
    }
}
