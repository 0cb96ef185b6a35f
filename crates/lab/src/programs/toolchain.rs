//! Go itself: the machine's own where that is new enough, and otherwise fetched, since Debian's is not.

use std::{
    env, fs,
    io::{self, ErrorKind},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use sha2::{Digest, Sha256};

use super::{BuildError, build::files, entry};

/// The oldest release that our go.mod files build with.
const OLDEST: (u32, u32) = (1, 26);

/// What is fetched: Go publishes its releases as modules too.
const FETCHED: &str = "1.26.8";
const PLATFORM: &str = if cfg!(target_arch = "aarch64") { "linux-arm64" } else { "linux-amd64" };
const SHA256: &str = if cfg!(target_arch = "aarch64") {
    "02b36b6787b3ac767668f630e2998df45a3b1f9ffee08d1bf3ef6487cd658d99"
} else {
    "30c2b1bf7dcc88d3eb0a1364e47ddd9128edb3110a30e8a0ef61cd5856b31de7"
};

pub(super) struct Toolchain {
    /// The command to try first.
    machine: PathBuf,
    /// Where a fetched one is kept.
    root: PathBuf,
    proxy: String,
    sha256: String,
    found: OnceLock<Go>,
}

pub(super) struct Go {
    pub command: PathBuf,
    /// As `go version` prints it.
    pub version: String,
}

impl Toolchain {
    pub fn new(cache: &Path) -> Self {
        // The first proxy of Go's own setting, which is a list.
        let proxy = env::var("GOPROXY").unwrap_or_default();
        let proxy =
            proxy.split([',', '|']).find(|proxy| proxy.contains("://")).unwrap_or("https://proxy.golang.org");
        Self::with(Path::new("go"), cache, proxy, SHA256)
    }

    pub fn with(machine: &Path, cache: &Path, proxy: &str, sha256: &str) -> Self {
        Self {
            machine: machine.to_owned(),
            root: cache.join("go"),
            proxy: proxy.trim_end_matches('/').to_owned(),
            sha256: sha256.to_owned(),
            found: OnceLock::new(),
        }
    }

    pub fn go(&self) -> Result<&Go, BuildError> {
        if let Some(go) = self.found.get() {
            return Ok(go);
        }
        let go = self.find()?;
        Ok(self.found.get_or_init(|| go))
    }

    fn find(&self) -> Result<Go, BuildError> {
        if let Some(version) = version(&self.machine)?
            && release(&version).is_some_and(|release| release >= OLDEST)
        {
            return Ok(Go { command: self.machine.clone(), version });
        }
        let folder = entry(&self.root, &format!("{FETCHED}-{}", &self.sha256[..8]), |out| self.fetch(out))?;
        let command = folder.join("bin/go");
        let version = version(&command)?.ok_or_else(|| cannot("it does not start"))?;
        Ok(Go { command, version })
    }

    fn fetch(&self, out: &Path) -> Result<(), BuildError> {
        eprintln!("fetching Go {FETCHED}");
        let module = format!("golang.org/toolchain@v0.0.1-go{FETCHED}.{PLATFORM}");
        let url = format!("{}/{}.zip", self.proxy, module.replacen('@', "/@v/", 1));
        let zip = out.join("go.zip");
        run(Command::new("curl")
            .args(["-fsSL", "--retry", "3", "--retry-delay", "1", "--retry-all-errors", "-o"])
            .arg(&zip)
            .arg(url))?;
        let sum = hex::encode(Sha256::digest(fs::read(&zip)?));
        if sum != self.sha256 {
            return Err(cannot(&format!("its SHA-256 is {sum}, and should be {}", self.sha256)));
        }
        run(Command::new("unzip").arg("-q").arg(&zip).arg("-d").arg(out))?;
        fs::remove_file(zip)?;
        let unpacked = out.join(&module);
        for file in files(&unpacked)? {
            // What a module may not hold as it is: a go.mod inside, and the right to be executed.
            if file.file_name().is_some_and(|name| name == "_go.mod") {
                fs::rename(&file, file.with_file_name("go.mod"))?;
            } else if file.starts_with(unpacked.join("bin")) || file.starts_with(unpacked.join("pkg/tool")) {
                fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
            }
        }
        for part in fs::read_dir(&unpacked)? {
            let part = part?;
            fs::rename(part.path(), out.join(part.file_name()))?;
        }
        Ok(fs::remove_dir_all(out.join("golang.org"))?)
    }
}

/// What the command says about itself; nothing if there is no such command.
fn version(go: &Path) -> Result<Option<String>, BuildError> {
    match Command::new(go).arg("version").env("GOTOOLCHAIN", "local").output() {
        Ok(done) if done.status.success() => Ok(Some(String::from_utf8_lossy(&done.stdout).into_owned())),
        Ok(done) => Err(cannot(String::from_utf8_lossy(&done.stderr).trim())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(cannot(&error.to_string())),
    }
}

/// `(1, 26)` of `go version go1.26.8 linux/amd64`.
fn release(version: &str) -> Option<(u32, u32)> {
    let number = version.split_whitespace().find_map(|word| word.strip_prefix("go1."))?;
    let minor: String = number.chars().take_while(char::is_ascii_digit).collect();
    Some((1, minor.parse().ok()?))
}

fn run(command: &mut Command) -> Result<(), BuildError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.output().map_err(|error: io::Error| cannot(&format!("{name}: {error}")))?;
    if done.status.success() { Ok(()) } else { Err(cannot(String::from_utf8_lossy(&done.stderr).trim())) }
}

fn cannot(why: &str) -> BuildError {
    BuildError::NoGo { version: FETCHED, why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module proxy in a folder, with a Go release that says only its version.
    fn proxy(folder: &Path) -> Toolchain {
        let top = format!("golang.org/toolchain@v0.0.1-go{FETCHED}.{PLATFORM}");
        let files = folder.join("files").join(&top);
        fs::create_dir_all(files.join("bin")).unwrap();
        fs::create_dir_all(files.join("src")).unwrap();
        fs::write(files.join("bin/go"), "#!/bin/sh\necho go version go1.26.8 fetched\n").unwrap();
        fs::write(files.join("src/_go.mod"), "module std\n").unwrap();
        let zip = folder.join(format!("{}.zip", top.replacen('@', "/@v/", 1)));
        fs::create_dir_all(zip.parent().unwrap()).unwrap();
        let git = |words: &[&str]| {
            let done = Command::new("git").arg("-C").arg(folder.join("files")).args(words).output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            String::from_utf8(done.stdout).unwrap().trim().to_owned()
        };
        git(&["init", "--quiet"]);
        git(&["add", "--all"]);
        git(&["archive", "--output", zip.to_str().unwrap(), &git(&["write-tree"])]);
        let sum = hex::encode(Sha256::digest(fs::read(&zip).unwrap()));
        let url = format!("file://{}/", folder.display());
        Toolchain::with(Path::new("/no/such/go"), &folder.join("cache"), &url, &sum)
    }

    #[test]
    fn a_machine_without_go_gets_one() {
        let folder = tempfile::tempdir().unwrap();
        let toolchain = proxy(folder.path());
        let go = toolchain.go().unwrap();
        assert_eq!(go.version, "go version go1.26.8 fetched\n");
        let home = go.command.parent().unwrap().parent().unwrap();
        assert!(home.join("src/go.mod").exists() && !home.join("golang.org").exists());
    }

    #[test]
    fn a_wrong_sum_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let toolchain = Toolchain { sha256: SHA256.to_owned(), ..proxy(folder.path()) };
        let error = toolchain.go().err().unwrap().to_string();
        assert!(error.contains("SHA-256"), "{error}");
    }

    #[test]
    fn releases_are_told_apart() {
        assert_eq!(release("go version go1.26.8 linux/amd64"), Some((1, 26)));
        assert_eq!(release("go version go1.27rc1 linux/arm64"), Some((1, 27)));
        assert!(release("go version go1.19.8 linux/amd64").unwrap() < OLDEST);
        assert_eq!(release("go version devel"), None);
    }
}
