//! Backups: the notes' commands as they stand, periodic ones over the operator's death, and settings that are wrong.

#[path = "../../../snapshot/tests/azure/azurite.rs"]
mod azurite;
mod before_upgrade;
mod faults;
mod fixture;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use lab::images::{Images, own_program};
use lab::kit::{TestNamespace, gone, lab_alone, shared_lab};
use lab::programs::{Program, default_cache};
use lab::wait::until;
use rstest::rstest;
use serde_json::{Value, json};
use snapshot::{StoreSource, manifest, store};

use crate::support::{Cluster, LIMIT, Operator, Outcome, stays};
use crate::tutorial::reader::Reader;
use crate::tutorial::shown::row;
use azurite::{ACCOUNT, Azurite, KEY};
use fixture::{Backup, manifests, put, secret};

const BOTH: &str = "--controllers=cluster,backup";

/// Step 12: Deployments as the notes have them, the `sed` line, and a `CronJob`.
#[tokio::test]
async fn the_notes() {
    let (lab, _alone) = lab_alone().await.unwrap();
    let test = TestNamespace::existing(lab, "default").await.unwrap();
    test.run(async |test| -> Outcome {
        test.lab.publish(Path::new(env!("CARGO_BIN_EXE_etcd-operator")))?;
        publish_kubectl(test)?;
        let reader = Reader::new(test).await?;
        clean_up(&reader).await?;
        reader.types("example/rbac/create_role.sh").await?;
        reader.types("kubectl create -f example/deployment.yaml").await?;
        reader.served("etcdclusters.etcd.database.coreos.com").await?;
        reader.types("kubectl create -f example/example-etcd-cluster.yaml").await?;
        let cluster = Cluster { test, name: "example-etcd-cluster".to_owned() };
        cluster.settled(3, "3.2.13").await?;
        put(&cluster, "foo", "bar").await?;

        reader.types("kubectl create -f example/etcd-backup-operator/deployment.yaml").await?;
        let crd = "etcdbackups.etcd.database.coreos.com";
        reader.served(crd).await?;
        reader.sees("kubectl get pod", |pods| row(pods, "etcd-backup-operator-").is_ok_and(|pod| pod.contains("1/1"))).await?;
        let aws = test.lab.layout.aws_dir().display().to_string();
        reader
            .types(&format!(
                "export AWS_DIR={aws}; kubectl create secret generic aws --from-file=$AWS_DIR/credentials --from-file=$AWS_DIR/config"
            ))
            .await?;
        reader
            .types(
                "sed -e 's|<full-s3-path>|mybucket/etcd.backup|g' \
                 -e 's|<aws-secret>|aws|g' \
                 -e 's|<etcd-cluster-endpoints>|\"http://example-etcd-cluster-client:2379\"|g' \
                 example/etcd-backup-operator/backup_cr.yaml \
                 | kubectl create -f -",
            )
            .await?;
        let made = Backup { test, name: "example-etcd-cluster-backup".to_owned() }.good().await?;
        assert_eq!((made.etcd_version.as_str(), made.last_object.as_str()), ("3.2.13", "mybucket/etcd.backup"));
        assert!(made.etcd_revision >= 2 && made.keys >= 1, "{made:?}");
        let table = reader.types("kubectl get etcdbackups").await?;
        row(&table, "NAME SUCCEEDED LAST BACKUP REVISION AGE")?;
        row(&table, "example-etcd-cluster-backup true ")?;
        let kept = manifests(test, "mybucket/etcd.backup").await?;
        let manifest = kept.iter().find(|one| one.object == "etcd.backup").ok_or("there is no manifest")?;
        assert_eq!(manifest.cluster_name.as_deref(), Some("example-etcd-cluster"));
        assert_eq!(manifest.cluster_spec.as_ref().map(|spec| &spec["size"]), Some(&json!(3)), "the spec is kept");

        reader.types("kubectl create -f example/etcd-backup-operator/cronjob.yaml").await?;
        reader.types("kubectl create job --from=cronjob/etcd-backup tonight").await?;
        let named = "kubectl get etcdbackups -o name | grep example-etcd-cluster-backup-";
        let created = reader.sees(named, |shown| shown.starts_with("etcdbackup.")).await?;
        let name = created.trim().rsplit('/').next().unwrap_or_default().to_owned();
        let made = Backup { test, name }.good().await?;
        assert_eq!(made.last_object, "mybucket/cron/etcd.backup");

        restored(&reader, &cluster).await?;
        clean_up(&reader).await
    })
    .await
    .unwrap();
}

/// Step 13: all is lost, and a whole new cluster comes from the backup, with the spec that was saved with it.
async fn restored(reader: &Reader<'_>, cluster: &Cluster<'_>) -> Outcome {
    reader.types("kubectl delete etcdcluster example-etcd-cluster").await?;
    reader.sees("kubectl get pods -l app=etcd -o name", str::is_empty).await?;
    reader.types("kubectl create -f example/etcd-restore-operator/deployment.yaml").await?;
    let crd = "etcdrestores.etcd.database.coreos.com";
    reader.served(crd).await?;
    reader
        .types(
            "sed -e 's|<full-s3-path>|mybucket/etcd.backup|g' \
             -e 's|<aws-secret>|aws|g' \
             example/etcd-restore-operator/restore_cr.yaml \
             | kubectl create -f -",
        )
        .await?;
    let succeeded = "kubectl get etcdrestore example-etcd-cluster -o jsonpath={.status.succeeded}";
    reader.sees(succeeded, |shown| shown.trim() == "true").await?;
    cluster.settled(3, "3.2.13").await?;
    let member = cluster.endpoints().await?.pop().ok_or("no member has an address")?;
    let found = etcd::Member::connect(&member, etcd::Expect::default())?.get("foo").await?;
    assert_eq!(found.map(|found| found.value), Some(b"bar".to_vec()));
    Ok(())
}

/// The `CronJob`'s image: nothing but kubectl, as the real one is.
fn publish_kubectl(test: &TestNamespace<'_>) -> Outcome {
    let kubectl = test.lab.programs.path(Program::Kubectl)?;
    let image = own_program(vec!["registry.k8s.io/kubectl:v1.33.0".parse()?], &kubectl, &["kubectl"])?;
    Ok(Images::new(&default_cache()?).publish(&[image], &test.lab.layout.registry_store())?)
}

async fn clean_up(reader: &Reader<'_>) -> Outcome {
    for line in [
        "kubectl delete --ignore-not-found -f example/etcd-backup-operator/cronjob.yaml",
        "kubectl delete --ignore-not-found -f example/etcd-backup-operator/deployment.yaml -f example/etcd-restore-operator/deployment.yaml -f example/deployment.yaml",
        "kubectl delete --ignore-not-found secret aws",
        "kubectl delete --ignore-not-found crd etcdbackups.etcd.database.coreos.com etcdrestores.etcd.database.coreos.com etcdclusters.etcd.database.coreos.com",
        "kubectl delete --ignore-not-found clusterrole,clusterrolebinding etcd-operator",
    ] {
        reader.types(line).await?;
    }
    reader.sees("kubectl get pods -o name", str::is_empty).await?;
    Ok(())
}

/// Slots are neither missed nor doubled, the policy takes what is too many, and a sibling's is not touched. Cron's come, too.
#[tokio::test]
async fn periodic_over_a_kill() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "periodic").await.unwrap();
    test.run(async |test| -> Outcome {
        let mut operator = Operator::start_with(test, &[BOTH])?;
        secret(test, "aws", json!({})).await?;
        let cluster = Cluster::create(test, "c", json!({"size": 1, "version": "3.5.16"})).await?;
        cluster.settled(1, "3.5.16").await?;
        put(&cluster, "k", "v").await?;
        let path = format!("mybucket/{}/etcd.backup", test.name);
        let sibling = Backup::once(
            &cluster,
            "sibling",
            json!({"s3": {"path": format!("{path}-sibling"), "awsSecret": "aws"}}),
        )
        .await?;
        sibling.good().await?;
        let periodic = json!({
            "backupPolicy": {"backupIntervalInSecond": 4, "maxBackups": 2},
            "s3": {"path": path, "awsSecret": "aws"},
        });
        let backup = Backup::once(&cluster, "periodic", periodic).await?;
        let by_cron = json!({
            "schedule": "* * * * *",
            "s3": {"path": format!("mybucket/{}/by-cron", test.name), "awsSecret": "aws"},
        });
        let scheduled = Backup::once(&cluster, "scheduled", by_cron).await?;
        let uid = backup.get().await?.metadata.uid.unwrap_or_default();
        let mut slots = BTreeSet::new();
        let mut objects = BTreeSet::new();
        for round in 0..4 {
            if round == 2 {
                operator.restart()?;
            }
            until("another backup", LIMIT, async || {
                let status = backup
                    .get()
                    .await
                    .map_err(|error| lab::Error::other("get", error))?
                    .status
                    .unwrap_or_default();
                let slot = status.last_slot.as_ref().map(|slot| slot.0);
                Ok(match slot {
                    Some(slot) if slots.insert(slot) => Ok(()),
                    _ => Err(format!("{status:?}")),
                })
            })
            .await?;
            let ours: Vec<_> =
                manifests(test, &path).await?.into_iter().filter(|one| one.owner_uid == uid).collect();
            let mut due: Vec<_> = ours.iter().map(|one| one.slot).collect();
            due.dedup();
            assert_eq!(due.len(), ours.len(), "a slot was made twice: {ours:?}");
            objects.extend(ours.into_iter().map(|one| one.object));
        }
        assert!(objects.len() >= 4, "{objects:?}");
        assert!(
            objects.iter().all(|object| object.contains("/etcd.backup_v")),
            "named as coreos did: {objects:?}"
        );
        until("two to be kept", LIMIT, async || {
            let ours = manifests(test, &path).await.map_err(|error| lab::Error::other("list", error))?;
            let ours = ours.iter().filter(|one| one.owner_uid == uid).count();
            Ok(if ours == 2 { Ok(()) } else { Err(ours) })
        })
        .await?;
        let age =
            format!("etcd_operator_backup_age_seconds{{namespace=\"{}\",backup=\"periodic\"}}", test.name);
        assert!(operator.metric(&age).await?.is_some_and(|age| age < 30.0), "the age is told");

        // It was asked for with the others: what is left of the minute is short.
        let slot = scheduled.good().await?.last_slot.map(|slot| slot.0.as_second() % 60);
        assert_eq!(slot, Some(0), "cron's slots are whole minutes");
        test.kubectl(&["delete", "etcdbackup", "periodic"]).await?;
        gone(&backup.api(), "periodic", LIMIT).await?;
        until("its age to be told no more", LIMIT, async || {
            let age = operator.metric(&age).await.map_err(|error| lab::Error::other("metrics", error))?;
            Ok(age.map_or(Ok(()), Err))
        })
        .await?;
        // What was under way when it was deleted may still come to its end; six seconds are longer than its interval.
        until("what it made, and no more", LIMIT, async || {
            let left = manifests(test, &path).await.map_err(|error| lab::Error::other("list", error))?;
            let rest = stays("what it made", Duration::from_secs(6), async || {
                Ok(manifests(test, &path).await? == left)
            });
            Ok(rest.await.map_err(|error| error.to_string()))
        })
        .await?;
        let left = manifests(test, &path).await?;
        assert!(left.iter().any(|one| one.owner_uid == uid), "what it made stays: {left:?}");
        assert!(
            left.iter().any(|one| one.object.ends_with("etcd.backup-sibling")),
            "the sibling's: {left:?}"
        );
        Ok(())
    })
    .await
    .unwrap();
}

/// Azure's, as its emulator plays it on this machine.
#[tokio::test]
async fn to_azure() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "azure").await.unwrap();
    test.run(async |test| -> Outcome {
        let azurite = Azurite::start();
        let keys = [("storage-account", ACCOUNT), ("storage-key", KEY)];
        let secret = keys.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec())).into();
        let path = "backups/etcd.backup";
        let source = StoreSource::Azure { path: path.into(), endpoint: Some(azurite.endpoint.clone()) };
        let place = store::open(&source, &secret)?;
        azurite.create("backups").await;
        let _operator = Operator::start_with(test, &[BOTH])?;
        let literals = keys.map(|(key, value)| format!("--from-literal={key}={value}"));
        test.kubectl(&["create", "secret", "generic", "abs", &literals[0], &literals[1]]).await?;
        let cluster = Cluster::create(test, "c", json!({"size": 1, "version": "3.5.16"})).await?;
        cluster.settled(1, "3.5.16").await?;
        put(&cluster, "k", "v").await?;
        let abs = json!({"path": path, "absSecret": "abs", "endpoint": azurite.endpoint});
        let backup = Backup::once(&cluster, "azure", json!({"storageType": "ABS", "abs": abs})).await?;
        let made = backup.good().await?;
        assert_eq!((made.last_object.as_str(), made.keys), (path, 1));
        assert!(manifest::read(&place).await?.is_some_and(|manifest| manifest.keys == 1));
        Ok(())
    })
    .await
    .unwrap();
}

/// Each says what is wrong, in its own words; put right, the backup is made.
#[tokio::test]
async fn wrong_settings() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "wrong").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = Operator::start_with(test, &[BOTH])?;
        let credentials = "[default]\naws_access_key_id = nobody\naws_secret_access_key = guess\n";
        secret(test, "aws", json!({})).await?;
        secret(test, "stranger", json!({"credentials": credentials})).await?;
        secret(test, "half", json!({"credentials": null})).await?;
        let cluster = Cluster::create(test, "c", json!({"size": 1, "version": "3.5.16"})).await?;
        cluster.settled(1, "3.5.16").await?;
        let path = format!("mybucket/{}/etcd.backup", test.name);
        let cases: [(&str, Value, &str, &str); 7] = [
            ("wrong-bucket", json!({"s3": {"path": "nosuchbucket/k"}}), "BucketNotFound", "create it"),
            ("wrong-key", json!({"s3": {"awsSecret": "stranger"}}), "StoreRefused", "check the secret"),
            (
                "wrong-secret",
                json!({"s3": {"awsSecret": "nobody"}}),
                "SecretNotFound",
                "create it, or correct its name",
            ),
            ("half-a-secret", json!({"s3": {"awsSecret": "half"}}), "SecretInvalid", "\"credentials\""),
            (
                "no-route",
                json!({"s3": {"endpoint": "http://127.0.0.1:9"}}),
                "StoreUnreachable",
                "cannot be reached",
            ),
            (
                "no-etcd",
                json!({"etcdEndpoints": ["http://127.0.0.1:9"]}),
                "EtcdUnreachable",
                "no member answers",
            ),
            (
                "no-cluster",
                json!({"etcdEndpoints": null, "clusterRef": {"name": "nobody"}}),
                "ClusterNotFound",
                "correct clusterRef",
            ),
        ];
        let mut backups = Vec::new();
        for (name, wrong, ..) in &cases {
            let mut spec = json!({"s3": {"path": path, "awsSecret": "aws"}});
            json_patch(&mut spec, wrong);
            backups.push(Backup::once(&cluster, name, spec).await?);
        }
        for (backup, (name, _, reason, says)) in backups.iter().zip(&cases) {
            let status = backup.failed(reason).await?;
            assert!(status.reason.contains(says), "{name}: {}", status.reason);
            assert!(!status.succeeded && status.next_backup.is_some(), "{name} is tried again: {status:?}");
        }
        assert!(manifests(test, &path).await?.is_empty(), "nothing was made");

        let fixed = &backups[0];
        fixed.edit(json!({"s3": {"path": path}})).await?;
        let status = fixed.good().await?;
        assert_eq!((status.failures, status.reason.as_str()), (0, ""));

        let refused =
            Backup::once(&cluster, "odd", json!({"storageType": "FTP"})).await.map(drop).unwrap_err();
        assert!(refused.to_string().contains("storageType must be S3, ABS, GCS or Volume"), "{refused}");
        Ok(())
    })
    .await
    .unwrap();
}

fn json_patch(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                json_patch(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// Old and new, to a store and to a volume; a finished one never runs again.
#[rstest]
#[case("3.1.10")]
#[case("3.3.12")]
#[case("3.4.15")]
#[case("3.5.16")]
#[case("3.6.4")]
#[tokio::test]
async fn of_version(#[case] version: &str) {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "version").await.unwrap();
    test.run(async |test| -> Outcome {
        let volumes = tempfile::tempdir()?;
        std::fs::create_dir(volumes.path().join("claim"))?;
        let folder = format!("--volumes={}", volumes.path().display());
        let mut operator = Operator::start_with(test, &[BOTH, &folder])?;
        secret(test, "aws", json!({})).await?;
        let cluster = Cluster::create(test, "c", json!({"size": 1, "version": version})).await?;
        cluster.settled(1, version).await?;
        put(&cluster, "k", "v").await?;
        let path = format!("mybucket/{}/etcd.backup", test.name);
        let store =
            Backup::once(&cluster, "store", json!({"s3": {"path": path, "awsSecret": "aws"}})).await?;
        let volume =
            json!({"storageType": "Volume", "volume": {"claimName": "claim", "path": "a/etcd.backup"}});
        let volume = Backup::once(&cluster, "volume", volume).await?;
        let (in_store, on_volume) = (store.good().await?, volume.good().await?);
        assert_eq!((in_store.etcd_version.as_str(), in_store.keys), (version, 1));
        assert_eq!((in_store.etcd_revision, in_store.keys), (on_volume.etcd_revision, on_volume.keys));
        assert_eq!(on_volume.last_object, "a/etcd.backup");
        assert!(volumes.path().join("claim/a/etcd.backup.manifest.json").is_file());

        let before = manifests(test, &path).await?;
        operator.restart()?;
        store.edit(json!({"s3": {"forcePathStyle": true}})).await?;
        store.seen().await?;
        stays("a finished one, which never runs again,", Duration::from_secs(5), async || {
            Ok(manifests(test, &path).await? == before)
        })
        .await
    })
    .await
    .unwrap();
}
