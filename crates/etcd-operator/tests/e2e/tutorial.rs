//! The book's chapter and the notes on it, typed as printed, with clients at work all the time. These tests delete the CRD,
//! as the book does, so each has the lab for itself.

pub mod reader;
pub mod shown;
mod walk;

use std::path::Path;

use lab::kit::{TestNamespace, lab_alone};

use crate::support::{Cluster, Outcome};
use reader::Reader;
use walk::CLUSTER;

/// The rights that the book gives, and not one more.
const BOOKS_ROLE: &str = include_str!("tutorial/book-role.yaml");
/// What today's operator needs beyond them, as it names it.
const MISSING: [&str; 8] = [
    "update etcdclusters/status of etcd.database.coreos.com",
    "list poddisruptionbudgets of policy",
    "watch poddisruptionbudgets of policy",
    "create poddisruptionbudgets of policy",
    "patch poddisruptionbudgets of policy",
    "get leases of coordination.k8s.io",
    "create leases of coordination.k8s.io",
    "update leases of coordination.k8s.io",
];

/// A reader before the first page: the operator's image is there to be pulled, and nothing of an earlier reader is.
async fn opens<'a>(test: &'a TestNamespace<'a>) -> Outcome<Reader<'a>> {
    test.lab.publish(Path::new(env!("CARGO_BIN_EXE_etcd-operator")))?;
    let reader = Reader::new(test).await?;
    reader.reads("kubectl delete --ignore-not-found -f etcd-operator-crd.yaml").await?;
    let others = "etcdbackups.etcd.database.coreos.com etcdrestores.etcd.database.coreos.com";
    reader.reads(&format!("kubectl delete --ignore-not-found crd {others}")).await?;
    for file in ["deployment", "role", "rolebinding", "sa"] {
        reader.reads(&format!("kubectl delete --ignore-not-found -f etcd-operator-{file}.yaml")).await?;
    }
    reader.types("kubectl delete --ignore-not-found pod etcdctl").await?;
    reader.types("kubectl delete --ignore-not-found lease etcd-operator").await?;
    reader.types("kubectl delete --ignore-not-found clusterrole,clusterrolebinding etcd-operator").await?;
    reader.sees("kubectl get pods -o name", str::is_empty).await?;
    Ok(reader)
}

async fn the_book(test: &TestNamespace<'_>, newest: &str) -> Outcome {
    let reader = opens(test).await?;
    let before = walk::inventory(&reader).await?;
    walk::prerequisites(&reader).await?;
    walk::crd(&reader).await?;
    walk::rights(&reader, "etcd-operator-role.yaml").await?;
    let operator = walk::deployment(&reader).await?;
    let cluster = Cluster { test, name: CLUSTER.to_owned() };
    walk::cluster(&reader, &cluster).await?;
    let load = cluster.traffic().await?;
    walk::described(&reader, &cluster).await?;
    walk::services(&reader).await?;
    walk::put_and_get(&reader).await?;
    walk::resize(&reader, &cluster).await?;
    walk::recovery(&reader, &cluster, &operator).await?;
    walk::upgrade_by_file(&reader, &cluster).await?;
    walk::upgrade_by_patch(&reader, &cluster, newest).await?;
    walk::put_and_get(&reader).await?;
    walk::events(&cluster, &operator).await?;
    load.end_without_failure().await?;
    walk::clean_up(&reader, &before).await
}

#[tokio::test]
async fn the_book_in_default() {
    let (lab, _alone) = lab_alone().await.unwrap();
    let test = TestNamespace::existing(lab, "default").await.unwrap();
    test.run(async |test| the_book(test, "3.3.12").await).await.unwrap();
}

#[tokio::test]
async fn the_book_in_another_namespace() {
    let (lab, _alone) = lab_alone().await.unwrap();
    let test = TestNamespace::new(lab, "book").await.unwrap();
    test.run(async |test| the_book(test, "\"3.3.12\"").await).await.unwrap();
}

/// The notes: rights by a script, and an operator that makes its CRD itself.
#[tokio::test]
async fn the_notes() {
    let (lab, _alone) = lab_alone().await.unwrap();
    let test = TestNamespace::existing(lab, "default").await.unwrap();
    test.run(async |test| -> Outcome {
        let reader = opens(test).await?;
        let before = walk::inventory(&reader).await?;
        reader.types("example/rbac/create_role.sh").await?;
        reader.types("kubectl create -f example/deployment.yaml").await?;
        walk::operator_runs(&reader).await?;
        reader.served("etcdclusters.etcd.database.coreos.com").await?;
        walk::crd_is_shown(&reader).await?;

        reader.types("kubectl apply -f example/example-etcd-cluster.yaml").await?;
        let cluster = Cluster { test, name: CLUSTER.to_owned() };
        cluster.settled(3, "3.2.13").await?;
        reader
            .types("kubectl wait --for=condition=Ready etcdcluster/example-etcd-cluster --timeout=10s")
            .await?;
        let load = cluster.traffic().await?;
        reader.types("kubectl scale etcdcluster/example-etcd-cluster --replicas=4").await?;
        cluster.settled(4, "3.2.13").await?;
        reader.types("kubectl scale etcdcluster/example-etcd-cluster --replicas=3").await?;
        cluster.settled(3, "3.2.13").await?;
        load.end_without_failure().await?;

        reader.types("kubectl delete -f example/example-etcd-cluster.yaml").await?;
        reader.types("kubectl delete -f example/deployment.yaml").await?;
        reader.types("kubectl delete clusterrole,clusterrolebinding etcd-operator").await?;
        reader.types("kubectl delete crd etcdclusters.etcd.database.coreos.com").await?;
        walk::left_as_it_was(&reader, &before).await
    })
    .await
    .unwrap();
}

/// Another namespace and other names are a matter of options.
#[tokio::test]
async fn the_script_of_the_notes_has_options() {
    let (lab, _alone) = lab_alone().await.unwrap();
    let test = TestNamespace::new(lab, "options").await.unwrap();
    test.run(async |test| -> Outcome {
        let reader = Reader::new(test).await?;
        let namespace = &test.name;
        let options =
            format!("--namespace={namespace} --service-account=keeper --role-name={namespace} --role-binding-name={namespace}");
        let may = format!("kubectl auth can-i create pods --as=system:serviceaccount:{namespace}:keeper");
        reader.reads_refused(&may).await?;
        reader.types(&format!("example/rbac/create_role.sh {options}")).await?;
        reader.sees(&may, |shown| shown.trim() == "yes").await?;
        reader.types(&format!("kubectl delete clusterrole,clusterrolebinding {namespace}")).await?;
        Ok(())
    })
    .await
    .unwrap();
}

/// With the book's rules, the operator stays up and names what it misses; given that, it goes on.
#[tokio::test]
async fn the_books_rights_alone() {
    let (lab, _alone) = lab_alone().await.unwrap();
    let test = TestNamespace::new(lab, "rights").await.unwrap();
    test.run(async |test| -> Outcome {
        let reader = opens(test).await?;
        walk::crd(&reader).await?;
        reader.writes("book-role.yaml", BOOKS_ROLE)?;
        walk::rights(&reader, "book-role.yaml").await?;
        let operator = walk::deployment(&reader).await?;
        let log = format!("kubectl logs {operator}");
        let said = reader.sees(&log, |log| log.contains("may not:")).await?;
        let named = said.split_once("may not:").map(|(_, rest)| rest).unwrap_or_default();
        let named = named.split_once("add to the rules").map(|(named, _)| named).unwrap_or_default();
        let named: Vec<&str> = named.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        for right in MISSING {
            let right = format!("{right} in namespace {}", test.name);
            assert!(named.iter().any(|line| line.starts_with(&right)), "{right} is not named in {named:#?}");
        }
        assert_eq!(named.len(), MISSING.len(), "{named:#?}");

        reader.reads("kubectl apply -f etcd-operator-role.yaml").await?;
        reader.reads("kubectl create -f etcd-cluster-cr.yaml").await?;
        let members = "kubectl get pods -l app=etcd -o name";
        reader.sees(members, |shown| shown.starts_with("pod/example-etcd-cluster-")).await?;
        assert_eq!(walk::operator_runs(&reader).await?, operator, "the same pod, never restarted");
        reader.reads("kubectl delete -f etcd-operator-crd.yaml").await?;
        Ok(())
    })
    .await
    .unwrap();
}
