//! Two of three members lost with their data: from the EtcdRestore to the first write that is accepted.

use std::process::Command;
use std::time::{Duration, Instant};

use api::conditions::{self, ConditionStatus};
use api::v1beta2::{EtcdCluster, EtcdRestore};
use etcd::{Expect, Member};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use lab::kit::{TestNamespace, gone, wait_for};
use lab::wait::until;
use serde_json::json;

use crate::health::{self, pods_of};
use crate::operator::Operator;
use crate::{Cli, LIMIT, Outcome, create, delete, ready};

const NAME: &str = "lost";
const SECRET: &str = "aws";

/// The operator's program is in the lab's registry, and the operator runs both controllers.
pub async fn prepare(cli: &Cli, test: &TestNamespace<'_>, operator: &mut Operator) -> Outcome {
    test.lab.publish(&cli.operator)?;
    operator
        .restart_with(&["--controllers=cluster,restore", "--image=quay.io/coreos/etcd-operator:latest"])?;
    let mut data = serde_json::Map::new();
    for file in ["credentials", "config"] {
        data.insert(file.to_owned(), std::fs::read_to_string(test.lab.layout.aws_dir().join(file))?.into());
    }
    let secret: Secret = serde_json::from_value(json!({"metadata": {"name": SECRET}, "stringData": data}))?;
    test.api::<Secret>().create(&PostParams::default(), &secret).await?;
    Ok(())
}

/// One loss and one restore.
pub async fn first_write(cli: &Cli, test: &TestNamespace<'_>, version: &str) -> Outcome<Duration> {
    create(test, NAME, version, 3).await?;
    ready(test, NAME).await?;
    let path = format!("mybucket/{}/{version}", test.name);
    put(test).await?;
    save(cli, test, &path).await?;
    lose_two(test).await?;
    let restore: EtcdRestore = serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdRestore", "metadata": {"name": NAME},
        "spec": {"etcdCluster": {"name": NAME}, "backupStorageType": "S3", "force": true,
            "s3": {"path": path, "awsSecret": SECRET}},
    }))?;
    let restores = test.api::<EtcdRestore>();
    let began = Instant::now();
    restores.create(&PostParams::default(), &restore).await?;
    until("a write to be accepted", LIMIT, async || Ok(put(test).await.map_err(|error| error.to_string())))
        .await?;
    let took = began.elapsed();
    let ended =
        |restore: &EtcdRestore| restore.status.as_ref().is_some_and(|status| status.finished.is_some());
    let status = wait_for(&restores, NAME, LIMIT, "to end", ended).await?.status.unwrap_or_default();
    if !status.succeeded {
        return Err(format!("the restore failed: {}", status.reason).into());
    }
    restores.delete(NAME, &DeleteParams::default()).await?;
    gone(&restores, NAME, LIMIT).await?;
    delete(test, NAME).await?;
    Ok(took)
}

/// To whoever serves clients.
async fn put(test: &TestNamespace<'_>) -> Outcome {
    let member = serving(test).await?.with_deadline(Duration::from_secs(1));
    Ok(member.put("bench", "kept").await.map(drop)?)
}

async fn serving(test: &TestNamespace<'_>) -> Outcome<Member> {
    let selector = format!("{},{}={}", pods_of(NAME), api::labels::SERVING, api::labels::SERVING_TRUE);
    let pods = health::list(test, &selector).await?;
    let ip = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).find_map(address);
    Ok(Member::connect(format!("{}:2379", ip.ok_or("nobody serves")?), Expect::default())?)
}

fn address(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.pod_ip.as_deref()
}

async fn save(cli: &Cli, test: &TestNamespace<'_>, path: &str) -> Outcome {
    let pods = health::list(test, &pods_of(NAME)).await?;
    let ip = pods.iter().find_map(address).ok_or("no member has an address")?;
    let saved = Command::new(&cli.operator)
        .args(["snapshot", "save", "--endpoint", &format!("http://{ip}:2379")])
        .args(["--source", &json!({"type": "s3", "path": path}).to_string()])
        .arg("--secret-dir")
        .arg(test.lab.layout.aws_dir())
        .output()?;
    let said = String::from_utf8_lossy(&saved.stderr);
    if saved.status.success() { Ok(()) } else { Err(format!("no backup: {said}").into()) }
}

async fn lose_two(test: &TestNamespace<'_>) -> Outcome {
    for pod in health::list(test, &pods_of(NAME)).await?.iter().take(2) {
        test.api::<Pod>().delete(&pod.name_any(), &DeleteParams::default().grace_period(1)).await?;
    }
    let lost = |cluster: &EtcdCluster| {
        let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice());
        let lost = conditions::find(conditions.unwrap_or_default(), "QuorumLost");
        lost.is_some_and(|lost| lost.status == ConditionStatus::True && lost.message.contains("EtcdRestore"))
    };
    wait_for(&test.api::<EtcdCluster>(), NAME, LIMIT, "to have lost quorum for good", lost).await?;
    Ok(())
}
