//! Real etcds with a history, and what they answer.

use super::{SOON, program};
use etcd::Member;
use etcd::kv::RangeRequest;
use etcd::process::{Bootstrap, Place};
use lab::programs::{EtcdVersion, Program};
use snapshot::Endpoints;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use twox_hash::XxHash3_128;

pub type Keys = BTreeMap<Vec<u8>, Vec<u8>>;

pub struct Etcd {
    pub places: Vec<Place>,
}

impl Etcd {
    pub async fn start(version: EtcdVersion, size: usize) -> Self {
        let mut places: Vec<Place> =
            ["a", "b", "c"][..size].iter().map(|name| Place::new(name).unwrap()).collect();
        let bootstrap = Bootstrap::new_cluster(&places);
        for place in &mut places {
            place.start(&program(Program::Etcd(version)), &bootstrap).unwrap();
        }
        for place in &places {
            place.healthy(SOON).await.unwrap();
        }
        Self { places }
    }

    /// On data that is there already.
    pub async fn start_on(version: EtcdVersion, mut place: Place) -> Self {
        let bootstrap = Bootstrap::new_cluster([&place]);
        place.start(&program(Program::Etcd(version)), &bootstrap).unwrap();
        place.healthy(SOON).await.unwrap();
        Self { places: vec![place] }
    }

    pub fn member(&self) -> Member {
        self.places[0].member().unwrap().with_deadline(Duration::from_secs(10))
    }

    pub fn endpoints(&self) -> Endpoints {
        Endpoints::new([format!("http://{}", self.places[0].client())])
    }

    /// One by one: an answer has at most four megabytes.
    pub async fn keys(&self) -> Keys {
        let all = RangeRequest { key: vec![0], range_end: vec![0], keys_only: true, ..Default::default() };
        let mut keys = Keys::new();
        for kv in self.member().range(all).await.unwrap().kvs {
            let kv = self.member().get(kv.key).await.unwrap().unwrap();
            keys.insert(kv.key, kv.value);
        }
        keys
    }

    /// Puts, overwrites and deletes, compacted on the way: a bit of everything that makes pages of every kind.
    pub async fn history(&self, changes: u32) {
        let member = self.member();
        for number in 0..changes {
            let key = format!(
                "/registry/{}/{}",
                ["pods", "leases", "nodes"][number as usize % 3],
                number * 7919 % 211
            );
            match number % 11 {
                9 => drop(member.delete(key).await.unwrap()),
                // Larger than a page, and now and then than many.
                3 => drop(member.put(key, vec![b'x'; 1 + (number as usize * 613) % 60_000]).await.unwrap()),
                _ => drop(member.put(key, format!("value {number}")).await.unwrap()),
            }
            if number == changes / 2 {
                let revision = member.revision().await.unwrap();
                member.compact(revision - 20).await.unwrap();
            }
        }
    }
}

/// What the digest of these keys must be: the sum of the hashes of all, as a number of 128 bits.
pub fn digest(keys: &Keys) -> String {
    let hashed = keys.iter().map(|(key, value)| {
        let whole = [&(key.len() as u64).to_le_bytes(), &key[..], &value[..]].concat();
        XxHash3_128::oneshot(&whole)
    });
    format!("{:032x}", hashed.fold(0_u128, u128::wrapping_add))
}

/// Restores with etcd's own tool of the same version into the data directory of `place`.
pub fn restore(version: EtcdVersion, snapshot: &Path, place: &Place, more: &[&str]) {
    let tool =
        if version >= EtcdVersion::V3_5_16 { Program::Etcdutl(version) } else { Program::Etcdctl(version) };
    let output = Command::new(program(tool))
        .env("ETCDCTL_API", "3")
        .args(["snapshot", "restore"])
        .arg(snapshot)
        .arg(format!("--name={}", place.name()))
        .arg(format!("--data-dir={}", place.data().display()))
        .arg(format!("--initial-cluster={}={}", place.name(), place.peer_url()))
        .arg(format!("--initial-advertise-peer-urls={}", place.peer_url()))
        .args(more)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
