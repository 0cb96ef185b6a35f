//! What the operator may do, and what it did, from the lab's audit log.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::PathBuf;

use lab::control::audit_log;
use lab::kit::TestNamespace;
use serde_json::Value;

use super::desk::Desk;
use crate::support::Outcome;

/// As RBAC names them: group, resource with its subresource, verb.
pub type Rights = BTreeSet<(String, String, String)>;

#[derive(Default)]
pub struct Asked {
    pub allowed: Rights,
    pub refused: Rights,
}

/// The log from some moment on.
pub struct Audit {
    path: PathBuf,
    from: u64,
}

impl Audit {
    pub fn from_now(test: &TestNamespace<'_>) -> Outcome<Self> {
        let path = audit_log(&test.lab.layout);
        Ok(Self { from: path.metadata()?.len(), path })
    }

    /// What this user asked for.
    pub fn asked(&self, user: &str) -> Outcome<Asked> {
        let mut file = File::open(&self.path)?;
        if file.metadata()?.len() < self.from {
            return Err("the audit log was set aside for a new one in the midst of the test".into());
        }
        file.seek(SeekFrom::Start(self.from))?;
        let mut asked = Asked::default();
        for line in BufReader::new(file).lines() {
            let line: Value = serde_json::from_str(&line?)?;
            let text =
                |pointer: &str| line.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            let group = text("/objectRef/apiGroup");
            // Everybody may ask what they may do.
            if text("/user/username") != user || group == "authorization.k8s.io" {
                continue;
            }
            let slash = if text("/objectRef/subresource").is_empty() { "" } else { "/" };
            let resource =
                format!("{}{slash}{}", text("/objectRef/resource"), text("/objectRef/subresource"));
            let code = line.pointer("/responseStatus/code").and_then(Value::as_u64);
            let rights = if code == Some(403) { &mut asked.refused } else { &mut asked.allowed };
            // What is applied and was not there is created, and needs both rights.
            if text("/verb") == "patch" && code == Some(201) {
                rights.insert((group.clone(), resource.clone(), "create".to_owned()));
            }
            rights.insert((group, resource, text("/verb")));
        }
        Ok(asked)
    }
}

/// What the roles in the API server give.
pub async fn granted(desk: &Desk<'_>) -> Outcome<Rights> {
    let shown = desk
        .types(
            "kubectl get clusterrole/etcd-operator:cluster-wide role/etcd-operator -n etcd-operator -o json",
        )
        .await?;
    let shown: Value = serde_json::from_str(&shown)?;
    let list = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let roles = shown["items"].as_array().into_iter().flatten();
    let mut rights = Rights::new();
    for rule in roles.flat_map(|role| role["rules"].as_array().into_iter().flatten()) {
        for group in list(&rule["apiGroups"]) {
            for resource in list(&rule["resources"]) {
                rights.extend(
                    list(&rule["verbs"]).into_iter().map(|verb| (group.clone(), resource.clone(), verb)),
                );
            }
        }
    }
    if rights.is_empty() { Err("the roles grant nothing".into()) } else { Ok(rights) }
}
