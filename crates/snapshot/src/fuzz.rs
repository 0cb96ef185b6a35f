//! The reader's entry for the fuzzer, and for the tests that do the same in short.

use crate::bolt::{HEADER, META_SIZE};
use crate::{Kind, Manifest, Place, StoreError, inspect, manifest, upload};
use sha2::{Digest, Sha256};
use tokio::runtime::Runtime;

/// Whose uploads are looked for.
const OWNER: &str = "a";

/// Reads any bytes as a snapshot and as a database; then again with their checksums put right, since behind those
/// almost nothing would be tried.
pub fn run(runtime: &Runtime, bytes: &[u8]) {
    is_refused(runtime, bytes);
    read(runtime, bytes, Kind::Database);
    let mended = mended(bytes);
    is_refused(runtime, &mended);
    read(runtime, &mended, Kind::Database);
}

pub fn is_refused(runtime: &Runtime, bytes: &[u8]) -> bool {
    !read(runtime, bytes, Kind::Snapshot)
}

fn read(runtime: &Runtime, bytes: &[u8], kind: Kind) -> bool {
    runtime.block_on(async {
        match Place::memory(bytes.to_vec()).await {
            Ok(place) => inspect(&place, kind).await.is_ok(),
            Err(_) => false,
        }
    })
}

/// The same pages, with good checksums of both meta pages and a good trailer.
fn mended(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for page in [0, 4096] {
        if let Some(meta) = bytes.get_mut(page + HEADER..page + META_SIZE) {
            let sum = crate::bolt::checksum(&meta[..56]);
            meta[56..].copy_from_slice(&sum.to_le_bytes());
        }
    }
    let body = bytes.len() / 512 * 512;
    bytes.truncate(body);
    let sum = Sha256::digest(&bytes);
    bytes.extend_from_slice(&sum);
    bytes
}

/// Reads any bytes as what lies beside a backup: its manifest, and the note of an upload. Gives whether the manifest was one.
pub fn beside(runtime: &Runtime, bytes: &[u8]) -> bool {
    runtime.block_on(read_beside(bytes)).unwrap_or(false)
}

async fn read_beside(bytes: &[u8]) -> Result<bool, StoreError> {
    let backup = Place::memory(bytes.to_vec()).await?;
    manifest::beside(&backup)?.put(bytes.to_vec()).await?;
    let listed = async || -> Result<Vec<Manifest>, StoreError> {
        let all = manifest::list(&backup).await?;
        // A number in somebody's spec may be rounded.
        Ok(all.into_iter().map(|(_, known)| Manifest { cluster_spec: None, ..known }).collect())
    };
    let known = listed().await?;
    for one in &known {
        manifest::write(&backup, one).await?;
        assert_eq!(listed().await?, known, "what was written is read the same");
    }
    drop(manifest::read(&backup).await);
    backup.followed_by(upload::SUFFIX)?.put(bytes.to_vec()).await?;
    // Which upload it names, the store may not know.
    let swept = upload::sweep(&backup, OWNER).await;
    assert!(backup.size().await.is_ok(), "what has a manifest stays: {swept:?}");
    Ok(!known.is_empty())
}

/// Where an endpoint leads, if it is one.
pub fn address(url: &str) -> Option<String> {
    crate::Endpoints::new([url]).in_namespace("ns").address(url).ok()
}
