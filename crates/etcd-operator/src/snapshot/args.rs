//! The command line of `etcd-operator snapshot`.

// Doc comments here are help texts, in which backticks would be noise.
#![allow(clippy::doc_markdown)]

use std::path::PathBuf;

use clap::{ArgAction, Parser, Subcommand};
use snapshot::StoreSource;

/// Read, verify and fetch backups.
#[derive(Clone, Debug, Parser)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Show what a snapshot holds: revision, keys, size, hash and digest, biggest prefixes.
    Inspect(Target),
    /// Exit with an error unless a snapshot, or the data directory of a member, is whole and as expected.
    Verify(Verify),
    /// Download a backup into a file, and verify it.
    Fetch(Fetch),
    /// Save a snapshot of a running cluster, and verify it.
    Save(Save),
}

#[derive(Clone, Debug, Parser)]
pub struct Target {
    /// A file, or s3://bucket/key, gs://bucket/key, azure://container/key, or http://s3-server:port/bucket/key.
    #[arg(value_name = "FILE|URL", required_unless_present_any = ["source", "data_dir"])]
    pub place: Option<String>,

    /// The same as JSON: {"type":"s3","path":"bucket/key",...}.
    #[arg(long, value_name = "JSON", value_parser = json_source, conflicts_with = "place")]
    pub source: Option<StoreSource>,

    /// The data directory of a member that does not run, in place of a snapshot.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["place", "source"])]
    pub data_dir: Option<PathBuf>,

    /// A folder with the store's secret, one file for each key, such as ~/.aws; without it, the identity of this
    /// process is used.
    #[arg(long, value_name = "DIR")]
    pub secret_dir: Option<PathBuf>,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Parser)]
pub struct Verify {
    #[command(flatten)]
    pub target: Target,

    /// The SHA-256 of the database that must be found.
    #[arg(long, value_name = "HEX")]
    pub expect_sha256: Option<String>,

    /// The digest of live keys and values that must be found.
    #[arg(long, value_name = "HEX")]
    pub expect_digest: Option<String>,

    /// A file to delete when all is well: the backup that the data was made from.
    #[arg(long, value_name = "FILE")]
    pub then_remove: Option<PathBuf>,

    /// With =true there is nothing left to do: the member has started on its data.
    #[arg(long, action = ArgAction::Set, default_value_t = false)]
    pub done: bool,
}

#[derive(Clone, Debug, Parser)]
pub struct Fetch {
    /// Where the backup is: {"type":"s3","path":"bucket/key",...}.
    #[arg(long, value_name = "JSON", value_parser = json_source)]
    pub source: StoreSource,

    /// A folder with the store's secret, one file for each key; without it, the identity of the pod is used.
    #[arg(long, value_name = "DIR")]
    pub secret_dir: Option<PathBuf>,

    /// The file to write; nothing is left there if anything fails.
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,

    /// The SHA-256 of the database that must be found.
    #[arg(long, value_name = "HEX")]
    pub expect_sha256: Option<String>,

    /// The digest of live keys and values that must be found.
    #[arg(long, value_name = "HEX")]
    pub expect_digest: Option<String>,

    /// A folder to delete first: what an earlier try made of the backup.
    #[arg(long, value_name = "DIR")]
    pub clear: Option<PathBuf>,

    /// With =true there is nothing left to do: the member has started on its data.
    #[arg(long, action = ArgAction::Set, default_value_t = false)]
    pub done: bool,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Parser)]
pub struct Save {
    /// A client address of the cluster, such as http://127.0.0.1:2379; the other members are found through it.
    #[arg(long = "endpoint", value_name = "URL", required = true)]
    pub endpoints: Vec<String>,

    /// Where it goes: {"type":"volume","root":"/backups","path":"etcd.backup"}.
    #[arg(long, value_name = "JSON", value_parser = json_source)]
    pub source: StoreSource,

    /// A folder with the store's secret, one file for each key; without it, the identity of this process is used.
    #[arg(long, value_name = "DIR")]
    pub secret_dir: Option<PathBuf>,
}

fn json_source(text: &str) -> Result<StoreSource, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// The store that a URL names; `None` if it is a file's name.
pub fn source(place: &str) -> Option<StoreSource> {
    let s3 = |path: &str, endpoint: Option<String>| StoreSource::S3 {
        path: path.to_owned(),
        force_path_style: endpoint.is_some(),
        endpoint,
        profile: None,
        region: None,
    };
    let (scheme, rest) = place.split_once("://")?;
    match scheme {
        "s3" => Some(s3(rest, None)),
        "gs" => Some(StoreSource::Gcs { path: rest.to_owned(), endpoint: None }),
        "azure" | "abs" => Some(StoreSource::Azure { path: rest.to_owned(), endpoint: None }),
        "http" | "https" => {
            let (host, path) = rest.split_once('/')?;
            Some(s3(path, Some(format!("{scheme}://{host}"))))
        }
        "file" => Some(StoreSource::Volume { root: "/".into(), path: rest.to_owned() }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_stores() {
        let at = |endpoint: Option<&str>| StoreSource::S3 {
            path: "b/k/l".into(),
            endpoint: endpoint.map(str::to_owned),
            force_path_style: endpoint.is_some(),
            profile: None,
            region: None,
        };
        assert_eq!(source("s3://b/k/l"), Some(at(None)));
        assert_eq!(source("http://s3:7070/b/k/l"), Some(at(Some("http://s3:7070"))));
        assert_eq!(source("gs://b/k"), Some(StoreSource::Gcs { path: "b/k".into(), endpoint: None }));
        assert_eq!(source("azure://c/k"), Some(StoreSource::Azure { path: "c/k".into(), endpoint: None }));
        assert_eq!(source("some/file.db"), None);
    }
}
