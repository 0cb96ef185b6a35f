//! `etcd-operator snapshot`: backups at a terminal, and in the init containers of a restore.

mod args;
mod show;

pub use args::Args;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use args::{Command, Fetch, Save, Target, Verify};
use jiff::Timestamp;
use runtime::shutdown;
use snapshot::{
    Contents, Endpoints, Expect, FetchError, From, InspectError, Kind, Meta, Naming, Place, SaveError,
    StoreError, fetch, inspect, save, store, verify_data_dir,
};
use thiserror::Error;

/// Where the kubelet looks for a container's last words.
const TERMINATION_LOG: &str = "/dev/termination-log";

#[derive(Debug, Error)]
pub enum SnapshotError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{place} is damaged: {source}")]
    Damaged { place: String, source: InspectError },
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Save(#[from] SaveError),
    #[error("{place}: {source}")]
    Mismatch { place: String, source: snapshot::Mismatch },
    #[error("the secret in {} cannot be read: {source}", path.display())]
    Secret { path: PathBuf, source: io::Error },
    #[error("{} cannot be removed: {source}", path.display())]
    NotRemoved { path: PathBuf, source: io::Error },
    #[error("cannot write the result: {0}")]
    Output(#[from] io::Error),
}

/// Runs one command; what went wrong is one line, in the termination log too.
pub async fn run(args: Args) -> Result<(), SnapshotError> {
    let done = match args.command {
        Command::Inspect(target) => read(&target, &Expect::default()).await.map(drop),
        Command::Verify(verify) => verified(&verify).await,
        Command::Fetch(fetch) => fetched(&fetch).await,
        Command::Save(save) => saved(save).await,
    };
    if let Err(error) = &done {
        last_words(Path::new(TERMINATION_LOG), &error.to_string());
    }
    done
}

async fn read(target: &Target, expect: &Expect) -> Result<Contents, SnapshotError> {
    if let Some(folder) = &target.data_dir {
        let contents = verify_data_dir(folder, expect).await?;
        show(&folder.display().to_string(), &contents, target.json)?;
        return Ok(contents);
    }
    let place = target.open()?;
    let contents = match inspect(&place, Kind::Snapshot).await {
        Ok(contents) => contents,
        Err(InspectError::Store(error)) => return Err(error.into()),
        Err(source) => return Err(SnapshotError::Damaged { place: place.to_string(), source }),
    };
    let mismatch = |source| SnapshotError::Mismatch { place: place.to_string(), source };
    expect.check(&contents).map_err(mismatch)?;
    show(&place.to_string(), &contents, target.json)?;
    Ok(contents)
}

/// The last step of a restored member's data; what was found is told in the termination log.
async fn verified(verify: &Verify) -> Result<(), SnapshotError> {
    if verify.done {
        return Ok(());
    }
    let expect = Expect { sha256: verify.expect_sha256.clone(), digest: verify.expect_digest.clone() };
    let contents = read(&verify.target, &expect).await?;
    if let Some(file) = &verify.then_remove {
        gone(std::fs::remove_file(file), file)?;
    }
    last_words(Path::new(TERMINATION_LOG), &show::brief(&contents));
    Ok(())
}

async fn fetched(args: &Fetch) -> Result<(), SnapshotError> {
    if args.done {
        return Ok(());
    }
    if let Some(folder) = &args.clear {
        gone(std::fs::remove_dir_all(folder), folder)?;
    }
    let from = store::open(&args.source, &secret(args.secret_dir.as_deref())?)?;
    let expect = Expect { sha256: args.expect_sha256.clone(), digest: args.expect_digest.clone() };
    let contents = fetch(&from, &args.to, &expect, |_| {}).await?;
    show(&args.to.display().to_string(), &contents, args.json)
}

/// What is not there need not be removed.
fn gone(removed: io::Result<()>, path: &Path) -> Result<(), SnapshotError> {
    match removed {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(SnapshotError::NotRemoved { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// For people: it belongs to no resource, and to the moment.
async fn saved(args: Save) -> Result<(), SnapshotError> {
    let place = store::open(&args.source, &secret(args.secret_dir.as_deref())?)?;
    let meta = Meta {
        slot: Timestamp::now(),
        owner_uid: "command line".into(),
        owner: String::new(),
        cluster_name: None,
        cluster_spec: None,
    };
    let from = From::Cluster(Endpoints::new(args.endpoints));
    let stop = shutdown::on_signal()?;
    let (_, manifest) =
        save(from, &place, Naming::AsGiven, &meta, &stop, |progress| eprintln!("{progress}")).await?;
    writeln!(io::stdout().lock(), "{}", serde_json::json!(manifest))?;
    Ok(())
}

impl Target {
    fn open(&self) -> Result<Place, SnapshotError> {
        let secret = secret(self.secret_dir.as_deref())?;
        match (&self.source, &self.place) {
            (Some(source), _) => Ok(store::open(source, &secret)?),
            (None, Some(place)) => match args::source(place) {
                Some(source) => Ok(store::open(&source, &secret)?),
                None => Ok(Place::file(Path::new(place))?),
            },
            (None, None) => Err(StoreError::BadPath(String::new()).into()),
        }
    }
}

/// The keys of a mounted Secret: its files. The kubelet's own begin with dots.
fn secret(folder: Option<&Path>) -> Result<BTreeMap<String, Vec<u8>>, SnapshotError> {
    let Some(folder) = folder else { return Ok(BTreeMap::new()) };
    let failed = |source| SnapshotError::Secret { path: folder.to_owned(), source };
    let mut secret = BTreeMap::new();
    for entry in folder.read_dir().map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if !name.starts_with('.') && path.is_file() {
            secret.insert(name, std::fs::read(&path).map_err(failed)?);
        }
    }
    Ok(secret)
}

fn show(place: &str, contents: &Contents, json: bool) -> Result<(), SnapshotError> {
    let text = if json { show::json(contents) } else { show::text(place, contents) };
    writeln!(io::stdout().lock(), "{text}")?;
    Ok(())
}

/// Outside of a pod there is no such file, and none is made.
fn last_words(log: &Path, words: &str) {
    if log.exists()
        && let Err(error) = std::fs::write(log, words)
    {
        eprintln!("etcd-operator: {} is not written: {error}", log.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mounted_secret_is_its_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("..data")).unwrap();
        std::fs::write(folder.path().join("credentials"), "c").unwrap();
        std::fs::write(folder.path().join(".hidden"), "h").unwrap();
        let secret = secret(Some(folder.path())).unwrap();
        assert_eq!(secret, [("credentials".to_owned(), b"c".to_vec())].into());
    }

    #[test]
    fn last_words_go_only_where_they_are_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        last_words(&log, "lost");
        assert!(!log.exists());
        std::fs::write(&log, "").unwrap();
        last_words(&log, "lost");
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "lost");
    }
}
