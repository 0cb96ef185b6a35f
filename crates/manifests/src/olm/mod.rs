//! What the Operator Lifecycle Manager wants to read, from the manifests of a release. A new release is one more entry in
//! [`etcd`] or [`nginx`] that names the one it replaces; nothing else knows which operator.

pub mod etcd;
pub mod nginx;

use std::path::Path;

use nginx_operator::manifests::{ManifestError, yaml};
use serde_json::{Value, json};

use crate::{File, MadeError};

/// What a package is, whatever its version.
pub struct Package {
    pub name: &'static str,
    pub title: &'static str,
    pub summary: &'static str,
    pub description: &'static str,
    pub categories: &'static str,
    pub keywords: &'static [&'static str],
    /// Base64 of an SVG.
    pub icon: &'static str,
    pub namespace: &'static str,
    pub minimum_kubernetes: String,
}

/// One version of a package.
pub struct Release {
    pub version: &'static str,
    /// The version that it follows: this makes the upgrade path.
    pub replaces: Option<&'static str>,
    /// Its capability level, as operatorhub.io calls it.
    pub capabilities: &'static str,
    pub image: String,
    /// Everything that it is installed with, as applied by hand.
    pub objects: Vec<Value>,
    pub crds: Vec<Value>,
    pub examples: Vec<Value>,
}

const CHANNEL: &str = "alpha";

/// The bundles and catalogs of both operators.
pub fn files(root: &Path) -> Result<Vec<File>, MadeError> {
    let mut files = of_package(&etcd::package(), &etcd::releases(root)?)?;
    files.extend(of_package(&nginx::package(), &nginx::releases()?)?);
    Ok(files)
}

fn of_package(package: &Package, releases: &[Release]) -> Result<Vec<File>, ManifestError> {
    let mut files = Vec::new();
    for release in releases {
        files.extend(bundle(package, release, &format!("bundle/{}", package.name))?);
    }
    let path = format!("bundle/catalog/{}/catalog.yaml", package.name);
    files.push((path, catalog(package, releases)?));
    Ok(files)
}

/// The bundle of one release, under `folder`.
pub fn bundle(package: &Package, release: &Release, folder: &str) -> Result<Vec<File>, ManifestError> {
    let manifest = |name: &str| format!("{folder}/{}/manifests/{name}.yaml", release.version);
    let mut files =
        vec![(manifest(&format!("{}.clusterserviceversion", package.name)), yaml(&[csv(package, release)])?)];
    for crd in &release.crds {
        files.push((manifest(text(crd, "/metadata/name")), yaml(std::slice::from_ref(crd))?));
    }
    for service in of_kind(release, "Service") {
        let mut service = service.clone();
        take_namespace(&mut service);
        files.push((manifest(&format!("{}.service", text(&service, "/metadata/name"))), yaml(&[service])?));
    }
    files.push((
        format!("{folder}/{}/metadata/annotations.yaml", release.version),
        yaml(&[annotations(package)])?,
    ));
    Ok(files)
}

/// A file-based catalog with every release and the way from one to the next.
pub fn catalog(package: &Package, releases: &[Release]) -> Result<String, ManifestError> {
    let name = |version: &str| format!("{}.v{version}", package.name);
    let entries: Vec<Value> = releases
        .iter()
        .map(|release| match release.replaces {
            None => json!({ "name": name(release.version) }),
            Some(replaces) => json!({ "name": name(release.version), "replaces": name(replaces) }),
        })
        .collect();
    let mut documents = vec![
        json!({
            "schema": "olm.package", "name": package.name, "defaultChannel": CHANNEL,
            "description": package.summary,
            "icon": { "base64data": package.icon, "mediatype": "image/svg+xml" },
        }),
        json!({ "schema": "olm.channel", "package": package.name, "name": CHANNEL, "entries": entries }),
    ];
    for release in releases {
        let mut properties = vec![json!({
            "type": "olm.package", "value": { "packageName": package.name, "version": release.version },
        })];
        for crd in &release.crds {
            for version in versions(crd) {
                let (group, kind) = (text(crd, "/spec/group"), text(crd, "/spec/names/kind"));
                let gvk = json!({ "group": group, "kind": kind, "version": version });
                properties.push(json!({ "type": "olm.gvk", "value": gvk }));
            }
        }
        documents.push(json!({
            "schema": "olm.bundle", "package": package.name, "name": name(release.version),
            "image": format!("{}-bundle:{}", package.name, release.version), "properties": properties,
        }));
    }
    yaml(&documents)
}

fn csv(package: &Package, release: &Release) -> Value {
    let mut csv = json!({
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": format!("{}.v{}", package.name, release.version),
            "namespace": "placeholder",
            "annotations": {
                "alm-examples": json!(release.examples).to_string(),
                "capabilities": release.capabilities,
                "categories": package.categories,
                "containerImage": release.image,
                "description": package.summary,
                "operatorframework.io/suggested-namespace": package.namespace,
            },
        },
        "spec": {
            "displayName": package.title,
            "description": package.description,
            "version": release.version,
            "maturity": "alpha",
            "minKubeVersion": package.minimum_kubernetes,
            "keywords": package.keywords,
            "provider": { "name": package.title },
            "maintainers": [{ "name": "Maintainers", "email": "maintainers@example.com" }],
            "links": [{ "name": "Source", "url": "https://example.com" }],
            "icon": [{ "base64data": package.icon, "mediatype": "image/svg+xml" }],
            "installModes": [
                { "type": "OwnNamespace", "supported": true },
                { "type": "SingleNamespace", "supported": false },
                { "type": "MultiNamespace", "supported": false },
                { "type": "AllNamespaces", "supported": false },
            ],
            "customresourcedefinitions": { "owned": owned(release) },
            "install": { "strategy": "deployment", "spec": {
                "permissions": permissions(release, "Role"),
                "clusterPermissions": permissions(release, "ClusterRole"),
                "deployments": deployments(release),
            } },
        },
    });
    if let Some(replaces) = release.replaces {
        csv["spec"]["replaces"] = json!(format!("{}.v{replaces}", package.name));
    }
    csv
}

fn owned(release: &Release) -> Vec<Value> {
    let mut all = Vec::new();
    for crd in &release.crds {
        let kind = text(crd, "/spec/names/kind");
        for version in versions(crd) {
            let schema =
                crd["spec"]["versions"].as_array().into_iter().flatten().find(|v| v["name"] == version);
            let description =
                schema.map(|v| text(v, "/schema/openAPIV3Schema/description")).unwrap_or_default();
            all.push(json!({
                "name": text(crd, "/metadata/name"), "version": version, "kind": kind,
                "displayName": kind, "description": description,
            }));
        }
    }
    all
}

fn permissions(release: &Release, kind: &str) -> Vec<Value> {
    let account = of_kind(release, "ServiceAccount").next().map(|account| text(account, "/metadata/name"));
    let rules: Vec<&Value> =
        of_kind(release, kind).flat_map(|role| role["rules"].as_array().into_iter().flatten()).collect();
    if rules.is_empty() {
        return Vec::new();
    }
    vec![json!({ "serviceAccountName": account.unwrap_or("default"), "rules": rules })]
}

fn deployments(release: &Release) -> Vec<Value> {
    of_kind(release, "Deployment")
        .map(|deployment| {
            let mut spec = deployment["spec"].clone();
            spec["template"]["spec"]["containers"][0]["image"] = json!(release.image);
            json!({ "name": text(deployment, "/metadata/name"), "spec": spec })
        })
        .collect()
}

fn annotations(package: &Package) -> Value {
    const PREFIX: &str = "operators.operatorframework.io.bundle";
    json!({ "annotations": {
        format!("{PREFIX}.mediatype.v1"): "registry+v1",
        format!("{PREFIX}.manifests.v1"): "manifests/",
        format!("{PREFIX}.metadata.v1"): "metadata/",
        format!("{PREFIX}.package.v1"): package.name,
        format!("{PREFIX}.channels.v1"): CHANNEL,
        format!("{PREFIX}.channel.default.v1"): CHANNEL,
    } })
}

fn of_kind<'a>(release: &'a Release, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    release.objects.iter().filter(move |object| object["kind"] == kind)
}

fn versions(crd: &Value) -> Vec<&str> {
    let all = crd["spec"]["versions"].as_array().into_iter().flatten();
    all.filter_map(|version| version["name"].as_str()).collect()
}

pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The lifecycle manager chooses it.
fn take_namespace(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("namespace");
    }
}
