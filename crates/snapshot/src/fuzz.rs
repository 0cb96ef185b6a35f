//! The reader's entry for the fuzzer, and for the tests that do the same in short.

use crate::bolt::{HEADER, META_SIZE};
use crate::{Kind, Place, inspect};
use sha2::{Digest, Sha256};
use tokio::runtime::Runtime;

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
