//! Operator and S3 server die at each step of a backup: it is made all the same, once, and nothing else is left.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use kube::ResourceExt;
use lab::kit::{TestNamespace, lab_alone, shared_lab};
use rstest::rstest;
use serde_json::json;
use snapshot::{Kind, Place};

use super::BOTH;
use super::fixture::{Backup, manifests, put, secret};
use crate::restore::gate::{Gate, Moment};
use crate::support::{Cluster, Operator, Outcome};

/// What a backup asks of its store, in its order: its name here, and how the request is known.
type Step = (&'static str, fn(&str) -> bool);

const STEPS: [Step; 8] = [
    ("looks", |line| line.starts_with("GET ") && line.contains("list-type=2")),
    ("begins", |line| line.starts_with("POST ") && line.contains("?uploads")),
    ("notes", |line| line.starts_with("PUT ") && line.contains(".uploading.json")),
    ("sends", |line| line.starts_with("PUT ") && line.contains("partNumber=")),
    ("completes", |line| line.starts_with("POST ") && line.contains("?uploadId=")),
    ("reads-back", |line| line.starts_with("GET ") && line.contains("etcd.backup HTTP")),
    ("counts", |line| line.starts_with("PUT ") && line.contains(".manifest.json")),
    ("forgets", |line| line.starts_with("POST ") && line.contains("?delete")),
];
/// So many backups are made at once.
const AT_ONCE: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Killed, and started anew.
    Operator,
    /// The same.
    Store,
}

struct Lives<'a> {
    operator: Operator,
    gate: Gate,
    cluster: Cluster<'a>,
    waves: usize,
}

impl<'a> Lives<'a> {
    async fn begin(test: &'a TestNamespace<'a>) -> Outcome<Self> {
        let operator = Operator::start_with(test, &[BOTH])?;
        let gate = Gate::open(test.lab).await?;
        secret(test, "aws", json!({})).await?;
        let cluster = Cluster::create(test, "c", json!({"size": 1, "version": "3.5.16"})).await?;
        cluster.settled(1, "3.5.16").await?;
        put(&cluster, "k", "v").await?;
        Ok(Self { operator, gate, cluster, waves: 0 })
    }

    /// Backups stand still, each at a step of its own; the faults strike, and all must come to a good end.
    async fn live(&mut self, moment: Moment, faults: &[Fault]) -> Outcome {
        for steps in STEPS.chunks(AT_ONCE) {
            self.waves += 1;
            self.wave(steps, moment, faults)
                .await
                .map_err(|error| format!("{moment:?}, {faults:?}: {error}"))?;
        }
        Ok(())
    }

    async fn wave(&mut self, steps: &[Step], moment: Moment, faults: &[Fault]) -> Outcome {
        let (began, test) = (Instant::now(), self.cluster.test);
        let (mut held, mut backups) = (Vec::new(), Vec::new());
        for (name, right) in steps {
            let name = format!("{name}-{}", self.waves);
            let (folder, right) = (format!("{}/{name}", test.name), *right);
            let path = format!("mybucket/{folder}/etcd.backup");
            let listed = folder.replace('/', "%2F");
            // What is deleted is not in the first line; but whoever else deletes stands still before that.
            let names =
                move |line: &str| [&folder, &listed, "?delete"].iter().any(|name| line.contains(*name));
            let ours = move |line: &str| names(line) && right(line);
            held.push(self.gate.hold(moment, ours));
            let s3 = json!({"path": path, "awsSecret": "aws", "endpoint": self.gate.url});
            backups.push((Backup::once(&self.cluster, &name, json!({"s3": s3})).await?, path));
        }
        for (held, (backup, _)) in held.iter().zip(&backups) {
            held.reached().await.map_err(|error| format!("{}: {error}", backup.name))?;
        }
        for fault in faults {
            match fault {
                Fault::Operator => self.operator.restart()?,
                Fault::Store => test.lab.restart_s3()?,
            }
        }
        drop(held);
        for (backup, path) in &backups {
            whole(backup, path).await.map_err(|error| format!("{}: {error}", backup.name))?;
            println!(
                "{}, {moment:?}, {faults:?}: good after {:.1} s",
                backup.name,
                began.elapsed().as_secs_f64()
            );
        }
        Ok(())
    }
}

/// Said to be made, it is there, to its last byte; and nothing else is.
async fn whole(backup: &Backup<'_>, path: &str) -> Outcome {
    let status = backup.good().await?;
    let uid = backup.get().await?.uid().unwrap_or_default();
    let found = manifests(backup.test, path).await?;
    let [manifest] = found.as_slice() else { return Err(format!("there are {found:?}").into()) };
    assert_eq!((&manifest.owner_uid, manifest.revision), (&uid, status.etcd_revision));
    let store = backup.test.lab.layout.root.join("s3");
    let object = store.join(path);
    let contents = snapshot::inspect(&Place::file(&object)?, Kind::Snapshot).await?;
    assert_eq!((&contents.digest, contents.keys), (&manifest.digest, manifest.keys));
    let left: BTreeSet<PathBuf> = files(object.parent().ok_or("no folder")?)?.into_iter().collect();
    let kept = BTreeSet::from([object.clone(), object.with_file_name("etcd.backup.manifest.json")]);
    assert_eq!(left, kept, "something is left lying about");
    Ok(())
}

fn files(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { found.extend(files(&path)?) } else { found.push(path) }
    }
    Ok(found)
}

/// Nobody else uploads meanwhile: the lab is alone.
fn no_parts_left(test: &TestNamespace<'_>) -> Outcome {
    let uploads = test.lab.layout.root.join("s3/mybucket/.sgwtmp/multipart");
    let parts = if uploads.exists() { files(&uploads)? } else { Vec::new() };
    if parts.is_empty() { Ok(()) } else { Err(format!("parts are left lying about: {parts:?}").into()) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operator_dies_at_each_step() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "backup-op").await.unwrap();
    let life = async |test: &TestNamespace<'_>| {
        Lives::begin(test).await?.live(Moment::Asked, &[Fault::Operator]).await
    };
    test.run(life).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_dies_at_each_step() {
    let (lab, _alone) = lab_alone().await.unwrap();
    let test = TestNamespace::new(lab, "backup-s3").await.unwrap();
    test.run(async |test| -> Outcome {
        Lives::begin(test).await?.live(Moment::Asked, &[Fault::Store]).await?;
        no_parts_left(test)
    })
    .await
    .unwrap();
}

/// Every set of faults, before and after each of the store's deeds; `make prove` runs these.
#[rstest]
#[case::asked(Moment::Asked)]
#[case::answered(Moment::Answered)]
#[ignore = "minutes: see make prove"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_at_each_step(#[case] moment: Moment) {
    let (lab, _alone) = lab_alone().await.unwrap();
    let test = TestNamespace::new(lab, "backup-all").await.unwrap();
    test.run(async |test| -> Outcome {
        let mut lives = Lives::begin(test).await?;
        for faults in [&[Fault::Operator][..], &[Fault::Store], &[Fault::Operator, Fault::Store]] {
            lives.live(moment, faults).await?;
            no_parts_left(test)?;
        }
        Ok(())
    })
    .await
    .unwrap();
}
