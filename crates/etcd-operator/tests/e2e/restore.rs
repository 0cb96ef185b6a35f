//! Restores: what a backup holds comes back whole, and a restore that cannot be done changes nothing.

pub mod bucket;
mod claim;
mod faults;
pub mod gate;
mod stopped;
mod troubles;
mod writes;

use std::path::Path;
use std::time::{Duration, Instant};

use api::conditions::{self, ConditionStatus};
use api::v1beta2::EtcdRestore;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use lab::kit::{TestNamespace, gone, shared_lab, wait_for};
use lab::wait::until;
use rstest::rstest;
use serde_json::{Value, json};

use crate::heal::volume;
use crate::support::{Cluster, LIMIT, Operator, Outcome, stays};
use bucket::Bucket;
use writes::Writes;

const VERSION: &str = "3.5.16";
const NAME: &str = "c";
/// The program under test, as the lab's registry has it.
const IMAGE: &str = "--image=quay.io/coreos/etcd-operator:latest";

/// The operator as one process of two controllers, its image where kubelets find it.
fn operator(test: &TestNamespace<'_>) -> Outcome<Operator> {
    test.lab.publish(Path::new(env!("CARGO_BIN_EXE_etcd-operator")))?;
    Operator::start_with(test, &["--controllers=cluster,restore", IMAGE])
}

/// A cluster that is full, a backup of it, and a client that writes on.
struct Scene<'a> {
    bucket: Bucket,
    cluster: Cluster<'a>,
    writes: Writes,
    /// What was promised before the backup began.
    promised: u64,
    object: String,
}

impl<'a> Scene<'a> {
    async fn set(test: &'a TestNamespace<'a>, spec: Value) -> Outcome<Self> {
        let bucket = Bucket::open(test).await?;
        let cluster = Cluster::create(test, NAME, spec).await?;
        let wanted = cluster.get().await?.spec;
        cluster.settled(usize::try_from(wanted.size)?, wanted.version()).await?;
        let writes = Writes::start(&cluster);
        let promised = writes.some(200).await?;
        let object = bucket.save(&cluster, "backup").await?;
        Ok(Self { bucket, cluster, writes, promised, object })
    }
}

fn restores(test: &TestNamespace<'_>) -> Api<EtcdRestore> {
    test.api()
}

/// Creates an EtcdRestore from the bucket's object, in the place of the one before.
async fn ask(test: &TestNamespace<'_>, object: &str, more: Value) -> Outcome {
    let mut spec = json!({
        "etcdCluster": {"name": NAME}, "backupStorageType": "S3",
        "s3": {"path": object, "awsSecret": bucket::SECRET},
    });
    merge(&mut spec, more);
    let restore: EtcdRestore = serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdRestore",
        "metadata": {"name": NAME}, "spec": spec,
    }))?;
    let api = restores(test);
    if api.get_opt(NAME).await?.is_some() {
        api.delete(NAME, &DeleteParams::default()).await?;
        gone(&api, NAME, LIMIT).await?;
    }
    api.create(&PostParams::default(), &restore).await?;
    Ok(())
}

fn merge(spec: &mut Value, more: Value) {
    if let (Value::Object(spec), Value::Object(more)) = (spec, more) {
        spec.extend(more);
    }
}

async fn ended(test: &TestNamespace<'_>) -> Outcome<EtcdRestore> {
    let over =
        |restore: &EtcdRestore| restore.status.as_ref().is_some_and(|status| status.finished.is_some());
    Ok(wait_for(&restores(test), NAME, LIMIT, "to end", over).await?)
}

async fn succeeds(test: &TestNamespace<'_>) -> Outcome<EtcdRestore> {
    let restore = ended(test).await?;
    let status = restore.status.clone().unwrap_or_default();
    if !status.succeeded {
        return Err(format!("{}: {}", status.phase, status.reason).into());
    }
    let (backup, restored) = (status.backup.unwrap_or_default(), status.restored.unwrap_or_default());
    assert_eq!((backup.digest.as_str(), backup.keys), (restored.digest.as_str(), restored.keys));
    assert!(!backup.digest.is_empty());
    Ok(restore)
}

/// Failed, for this reason and in these words, and the cluster is as it was.
async fn fails(cluster: &Cluster<'_>, reason: &str, words: &str) -> Outcome<EtcdRestore> {
    let restore = ended(cluster.test).await?;
    let status = restore.status.clone().unwrap_or_default();
    println!("{}: {}", status.phase, status.reason);
    let stalled = conditions::find(&status.conditions, "Stalled").map(|stalled| stalled.reason.as_str());
    let as_told = !status.succeeded
        && status.phase == "Failed"
        && status.reason.contains(words)
        && stalled == Some(reason);
    if as_told { Ok(restore) } else { Err(format!("{status:?}, expected {reason}: {words:?}").into()) }
}

async fn at(test: &TestNamespace<'_>, phase: &str) -> Outcome {
    let there = |restore: &EtcdRestore| {
        restore.status.as_ref().is_some_and(|status| status.phase == phase || status.finished.is_some())
    };
    wait_for(&restores(test), NAME, LIMIT, &format!("to be {phase}"), there).await?;
    Ok(())
}

fn spec(version: &str, on_volumes: bool) -> Value {
    let mut spec = json!({"size": 3, "version": version});
    if on_volumes {
        spec["pod"] = json!({"persistentVolumeClaimSpec": volume()});
    }
    spec
}

#[rstest]
#[case::on_empty_dirs("loss", false)]
#[case::on_volumes("loss-pv", true)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_majority_comes_back_from_a_backup(#[case] prefix: &str, #[case] on_volumes: bool) {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, prefix).await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = operator(test)?;
        let Scene { bucket, cluster, writes, promised, object } =
            Scene::set(test, spec(VERSION, on_volumes)).await?;
        writes.some(50).await?;
        lose_two(&cluster, on_volumes).await?;
        writes.stop().await?;
        let before = (cluster.get().await?, cluster.footprints().await?);

        ask(test, &object, json!({})).await?;
        let refused =
            fails(&cluster, "SurvivorNewer", "newer than the backup").await?.status.unwrap_or_default();
        let survivor = refused.survivors.first().ok_or("no survivor was saved")?;
        assert!(survivor.dropped >= 50, "{survivor:?}");
        bucket.holds(&survivor.saved_to).await?;
        let now = (cluster.get().await?, cluster.footprints().await?);
        assert_eq!((before.0.metadata.annotations, &before.1), (now.0.metadata.annotations, &now.1));

        let asked = Instant::now();
        ask(test, &object, json!({"force": true})).await?;
        first_write(&cluster).await?;
        println!(
            "{prefix}: first write accepted {:.1} s after the EtcdRestore",
            asked.elapsed().as_secs_f64()
        );
        succeeds(test).await?;
        println!("{prefix}: full after {:.1} s", asked.elapsed().as_secs_f64());
        cluster.settled(3, VERSION).await?;
        writes::all_there(&cluster, promised).await?;
        let status = cluster.get().await?.status.unwrap_or_default();
        assert_ne!(status.cluster_id, before.0.status.unwrap_or_default().cluster_id);
        assert!(writes::revision(&cluster).await? > 1_000_000_000, "watchers see revisions go on");
        until("what was replaced to go", LIMIT, async || {
            let left = cluster.footprints().await.map_err(|error| lab::Error::other("pods", error))?;
            let old: Vec<_> = left.keys().filter(|name| before.1.contains_key(*name)).collect();
            Ok(if old.is_empty() { Ok(()) } else { Err(format!("{old:?}")) })
        })
        .await?;
        let again = Writes::start(&cluster);
        again.some(100).await?;
        again.stop().await
    })
    .await
    .unwrap();
}

/// Two of three, pods and data, while clients write.
async fn lose_two(cluster: &Cluster<'_>, on_volumes: bool) -> Outcome {
    let names: Vec<String> = cluster.pod_names().await?.into_iter().take(2).collect();
    if on_volumes {
        let mut delete = vec!["delete", "pvc", "--wait=false"];
        delete.extend(names.iter().map(String::as_str));
        cluster.test.kubectl(&delete).await?;
    }
    let mut delete = vec!["delete", "pod", "--wait=false", "--grace-period=1"];
    delete.extend(names.iter().map(String::as_str));
    cluster.test.kubectl(&delete).await?;
    says_lost(cluster).await
}

/// For good: the message tells of the way back.
async fn says_lost(cluster: &Cluster<'_>) -> Outcome {
    let lost = |status: &api::EtcdClusterStatus| {
        let lost = status.conditions.iter().find(|condition| condition.type_ == "QuorumLost");
        lost.is_some_and(|lost| lost.status == ConditionStatus::True && lost.message.contains("EtcdRestore"))
    };
    cluster.says("to tell that quorum is lost for good", LIMIT, lost).await?;
    Ok(())
}

/// Accepted by whoever serves clients now.
async fn first_write(cluster: &Cluster<'_>) -> Outcome {
    until("a write to be accepted", LIMIT, async || {
        let put = writes::put(cluster, "first", "write").await;
        Ok(put.map_err(|error| error.to_string()))
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_restored_leaves_everything_as_it_was() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "damaged").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = operator(test)?;
        let Scene { bucket, cluster, writes, object, .. } = Scene::set(test, spec(VERSION, false)).await?;
        let before = cluster.footprints().await?;

        ask(test, &object, json!({})).await?;
        fails(&cluster, "ClusterHealthy", "is healthy").await?;
        let good = bucket.read(&object).await?;
        for (name, bytes, words) in bucket::damages(&good) {
            let object = bucket.put(name, bytes).await?;
            ask(test, &object, json!({"force": true})).await?;
            let damaged = fails(&cluster, "BackupDamaged", words);
            damaged.await.map_err(|error| format!("{name}: {error}"))?;
        }
        let manifest = String::from_utf8(bucket.read(&format!("{object}.manifest.json")).await?)?;
        bucket.put("newer.manifest.json", manifest.replace(VERSION, "3.6.16").into_bytes()).await?;
        let newer = bucket.put("newer", good).await?;
        ask(test, &newer, json!({"force": true})).await?;
        fails(&cluster, "VersionRefused", "backup of etcd 3.6.16").await?;
        let s3 = |path: &str, secret: &str, endpoint: &str| {
            json!({"force": true, "s3": {"path": path, "awsSecret": secret, "endpoint": endpoint}})
        };
        bucket.bad_secrets(test).await?;
        for (more, reason, words) in [
            (s3("mybucket/nothing-here", bucket::SECRET, ""), "ObjectNotFound", "there is no"),
            (s3("nobodys/backup", bucket::SECRET, ""), "BucketNotFound", "there is no bucket"),
            (s3(&object, "", ""), "SecretMissing", "write the name of a Secret"),
            (s3(&object, "nobody", ""), "SecretNotFound", "there is no Secret"),
            (s3(&object, "wrong", ""), "StoreRefused", "refused"),
            (s3(&object, "half", ""), "SecretInvalid", "credentials"),
            (s3(&object, bucket::SECRET, "http://127.0.0.1:9"), "StoreUnreachable", "cannot be reached"),
        ] {
            ask(test, &object, more.clone()).await?;
            fails(&cluster, reason, words).await.map_err(|error| format!("{more}: {error}"))?;
        }
        stays("the cluster", Duration::from_secs(3), async || Ok(cluster.footprints().await? == before)).await?;
        assert_eq!(cluster.get().await?.annotations().get(api::annotations::RESTORE), None);
        writes.stop().await?;
        cluster.settled(3, VERSION).await?;
        Ok(())
    })
    .await
    .unwrap();
}

#[rstest]
#[case::oldest("v31", "3.1.10", "3.1.10")]
#[case::without_learners("v33", "3.3.12", "3.3.12")]
#[case::newest("v36", "3.6.16", "3.6.16")]
#[case::upgraded("v34", "3.4.15", "3.5.16")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn into_a_cluster_that_is_not_there(#[case] prefix: &str, #[case] made_by: &str, #[case] into: &str) {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, prefix).await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = operator(test)?;
        let Scene { cluster, writes, promised, object, .. } =
            Scene::set(test, json!({"size": 1, "version": made_by})).await?;
        writes.stop().await?;
        cluster.api().delete(NAME, &DeleteParams::default()).await?;
        gone(&cluster.api(), NAME, LIMIT).await?;

        let template = json!({"size": 3, "version": into});
        let more = if made_by == into { json!({}) } else { json!({"clusterTemplate": template}) };
        let size = if made_by == into { 1 } else { 3 };
        ask(test, &object, more).await?;
        succeeds(test).await?;
        cluster.settled(size, into).await?;
        writes::all_there(&cluster, promised).await?;
        first_write(&cluster).await
    })
    .await
    .unwrap();
}
