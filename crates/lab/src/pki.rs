//! Certificates and kubeconfigs of a lab: one CA, one certificate for each component.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};

use crate::error::{At, Error, Result};
use crate::layout::{API_SERVICE, Layout, node_name};

/// Who a certificate stands for: file name, user and group as Kubernetes reads them, names it serves under.
struct Subject {
    file: String,
    user: String,
    group: Option<&'static str>,
    names: Vec<String>,
}

fn subjects(lab: &Layout) -> Vec<Subject> {
    let client = |file: &str, user: &str, group| Subject {
        file: file.into(),
        user: user.into(),
        group,
        names: vec![],
    };
    let mut all = vec![
        Subject {
            file: "apiserver".into(),
            user: "kube-apiserver".into(),
            group: None,
            names: [
                "localhost",
                "kubernetes",
                "kubernetes.default",
                "kubernetes.default.svc",
                "kubernetes.default.svc.cluster.local",
                "127.0.0.1",
            ]
            .into_iter()
            .map(str::to_owned)
            .chain([lab.control_ip().to_string(), API_SERVICE.to_string()])
            .collect(),
        },
        client("admin", "admin", Some("system:masters")),
        client("controller-manager", "system:kube-controller-manager", None),
        client("scheduler", "system:kube-scheduler", None),
        client("proxy", "system:kube-proxy", None),
        client("front-proxy", "front-proxy", None),
    ];
    all.extend((1..=lab.nodes).map(|n| Subject {
        file: node_name(n),
        user: format!("system:node:{}", node_name(n)),
        group: Some("system:nodes"),
        names: vec![node_name(n), lab.node_ip(n).to_string()],
    }));
    all
}

/// Issues what is missing. The marker is written last: a half-made folder is made anew.
pub fn ensure(lab: &Layout) -> Result<()> {
    let dir = lab.pki();
    let done = dir.join("complete");
    if done.exists() {
        return Ok(());
    }
    fs::create_dir_all(&dir).at(&dir)?;
    issue_all(lab, &dir).map_err(|e| Error::other("certificates", e))?;
    for subject in subjects(lab).iter().filter(|s| s.file != "apiserver" && s.file != "front-proxy") {
        let file = if subject.file == "admin" {
            lab.kubeconfig()
        } else {
            dir.join(format!("{}.kubeconfig", subject.file))
        };
        write_private(&file, &kubeconfig(lab, &subject.file)?)?;
    }
    fs::write(&done, "").at(&done)
}

fn issue_all(lab: &Layout, dir: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, format!("lab {}", lab.name));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    fs::write(dir.join("ca.crt"), ca.pem())?;
    write_private(&dir.join("ca.key"), &ca.key().serialize_pem())?;

    let accounts = KeyPair::generate()?;
    write_private(&dir.join("sa.key"), &accounts.serialize_pem())?;
    fs::write(dir.join("sa.pub"), public_pem(&accounts))?;

    for subject in subjects(lab) {
        let mut params = CertificateParams::default();
        let mut name = DistinguishedName::new();
        if let Some(group) = subject.group {
            name.push(DnType::OrganizationName, group);
        }
        name.push(DnType::CommonName, &subject.user);
        params.distinguished_name = name;
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.subject_alt_names = subject.names.iter().map(|n| san(n)).collect::<Result<_, _>>()?;
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &ca)?;
        fs::write(dir.join(format!("{}.crt", subject.file)), cert.pem())?;
        write_private(&dir.join(format!("{}.key", subject.file)), &key.serialize_pem())?;
    }
    Ok(())
}

fn san(name: &str) -> Result<SanType, rcgen::Error> {
    match name.parse::<IpAddr>() {
        Ok(ip) => Ok(SanType::IpAddress(ip)),
        Err(_) => Ok(SanType::DnsName(name.try_into()?)),
    }
}

fn public_pem(key: &KeyPair) -> String {
    let body = base64(&key.subject_public_key_info());
    let lines: Vec<&str> = body.as_bytes().chunks(64).filter_map(|c| std::str::from_utf8(c).ok()).collect();
    format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", lines.join("\n"))
}

/// Self-contained, so that the file may be copied anywhere.
fn kubeconfig(lab: &Layout, file: &str) -> Result<String> {
    let read = |name: String| {
        let path = lab.pki().join(name);
        fs::read(&path).at(&path).map(|bytes| base64(&bytes))
    };
    let name = format!("lab-{}", lab.name);
    let config = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": lab.api_url(), "certificate-authority-data": read("ca.crt".into())?}}],
        "users": [{"name": file, "user": {
            "client-certificate-data": read(format!("{file}.crt"))?,
            "client-key-data": read(format!("{file}.key"))?,
        }}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": file}}],
        "current-context": name,
    });
    serde_json::to_string_pretty(&config).map_err(|e| Error::other("kubeconfig", e))
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path).at(path)?;
    file.write_all(text.as_bytes()).at(path)
}
