//! Alerts, dashboard and pages speak of metrics that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use domain::Report;
use jiff::Timestamp;
use kube::Config;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use crate::scope::Key;
use crate::{backup, cluster, process};

const ALERTS: &str = "deploy/prometheus/alerts.yaml";
const DASHBOARD: &str = "deploy/grafana/etcd-operator.json";
const PAGE: &str = "docs/metrics.md";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Every metric of the operator, as `/metrics` prints it once each has something to say.
async fn shown() -> String {
    let mut registry = Registry::with_prefix(process::METRICS);
    let metrics = runtime::metrics::Metrics::register(&mut registry, "0");
    metrics.reconcile("cluster").ok();
    metrics.leading("lease").set(1);
    let nobody = Config::new("http://127.0.0.1:1".parse().unwrap());
    let client = runtime::client::builder(nobody, "test", metrics).unwrap().build();
    client.apiserver_version().await.unwrap_err();
    let key = Key { namespace: "ns".into(), name: "c".into() };
    let clusters = cluster::Metrics::register(&mut registry);
    clusters.report(&key, &Report { size: 3, ..cluster::silent() });
    clusters.stepped("Bootstrap", "CreateSeed", &Ok(cluster::Outcome::Done));
    let backups = backup::Metrics::register(&mut registry);
    backups.attempted("made");
    backups.last_good(&key, Timestamp::now());
    runtime::metrics::text(&registry).unwrap()
}

/// Words that begin as our metrics do.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with(&format!("{}_", process::METRICS))).collect()
}

/// Names of series, with the endings that kinds of metrics add.
fn series(shown: &str) -> BTreeSet<&str> {
    let lines = shown.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split(['{', ' ']).next()).collect()
}

#[tokio::test]
async fn alerts_and_dashboard_ask_for_metrics_that_exist() {
    let shown = shown().await;
    let exist = series(&shown);
    for file in [ALERTS, DASHBOARD, PAGE] {
        let text = read(file);
        let asked = names(&text);
        assert!(!asked.is_empty(), "{file}");
        let unknown: Vec<_> = asked.difference(&exist).collect();
        assert!(unknown.is_empty(), "{file} asks for {unknown:?}, and there is only\n{exist:#?}");
    }
}

/// The page has a row for each, with the words of its help text.
#[tokio::test]
async fn every_metric_is_explained() {
    let (shown, page) = (shown().await, read(PAGE));
    for line in shown.lines().filter_map(|line| line.strip_prefix("# HELP ")) {
        let (name, help) = line.split_once(' ').unwrap();
        assert!(page.contains(&format!("| `{name}")), "{name} is not on {PAGE}");
        let help = help.trim_end_matches('.');
        assert!(page.contains(help), "{name}: {PAGE} does not say: {help}");
    }
}

/// Prometheus' own tool reads every question of the page and every panel of the dashboard, as rules that would record the answers.
#[test]
fn every_question_can_be_asked() {
    let (page, dashboard) = (read(PAGE), read(DASHBOARD));
    let (_, questions) = page.split_once("## Questions").unwrap();
    let rows = questions.lines().filter(|line| line.starts_with('|'));
    let mut asked: Vec<String> = rows.filter_map(|row| row.split('`').nth(1)).map(str::to_owned).collect();
    assert!(asked.len() > 3, "{asked:?}");
    let on_the_page = asked.len();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    // Grafana fills these in; names of objects stand in quotes, and may stay.
    asked.extend(targets.map(|target| target["expr"].as_str().unwrap().replace("$__rate_interval", "5m")));
    assert!(asked.len() > on_the_page + 10, "{asked:?}");

    let rules: Vec<Value> = asked.iter().map(|asked| json!({"record": "an:answer", "expr": asked})).collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, json!({"groups": [{"name": "questions", "rules": rules}]}).to_string()).unwrap();
    let done = Command::new("promtool").args(["check", "rules", "--lint=none"]).arg(file.path()).output();
    let done = done.expect("promtool is in Debian's package prometheus");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn every_alert_has_its_page() {
    let alerts = read(ALERTS);
    let tested = read("deploy/prometheus/alerts.test.yaml");
    let named: Vec<&str> = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(named.len() > 5, "{named:?}");
    for alert in &named {
        let page = format!("docs/runbooks/{alert}.md");
        assert!(read(&page).starts_with(&format!("# {alert}\n")), "{page}");
        assert!(alerts.contains(&format!("runbook: {page}")), "{alert} does not name its page");
        assert!(tested.contains(&format!("alertname: {alert}\n")), "{alert} is not tested");
    }
    let pages = fs::read_dir(root().join("docs/runbooks")).unwrap().count();
    assert_eq!(pages, named.len(), "a page for an alert that is no more");
}
