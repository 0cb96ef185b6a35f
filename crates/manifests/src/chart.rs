//! The parts of the Helm chart that are made; its templates are written by hand, and a test holds what they make against
//! the files in `deploy/`.

use etcd_operator::rights;
use serde_json::json;

use crate::install::{CONTROLLERS, NAME, definitions, rules, user_roles};
use crate::{File, MadeError, VERSION};

const ROOT: &str = "charts/etcd-operator";

pub fn files() -> Result<Vec<File>, MadeError> {
    let at = |path: &str| format!("{ROOT}/{path}");
    let chart = json!({
        "apiVersion": "v2",
        "name": NAME,
        "description": "Creates, scales, heals, upgrades, backs up and restores etcd clusters",
        "type": "application",
        "version": VERSION,
        "appVersion": VERSION,
        "kubeVersion": format!(">= {}.0-0", runtime::client::MINIMUM_VERSION),
        "keywords": ["etcd", "operator"],
    });
    let mut files = vec![(at("Chart.yaml"), serde_saphyr::to_string(&chart)?)];
    for crd in definitions()? {
        let plural = crd["spec"]["names"]["plural"].as_str().unwrap_or_default();
        files.push((at(&format!("files/crds/{plural}.yaml")), serde_saphyr::to_string(&crd)?));
    }
    let of_controllers = CONTROLLERS.iter().map(|(name, one)| (*name, rights::granted(*one)));
    let others = [
        ("everyone", rights::EVERYONE.to_vec()),
        ("home", rights::granted_at_home()),
        ("nodes", rights::optional::EVERYWHERE.to_vec()),
    ];
    for (name, needs) in of_controllers.chain(others) {
        files.push((at(&format!("files/rules/{name}.yaml")), serde_saphyr::to_string(&rules(&needs))?));
    }
    for role in user_roles() {
        let name = role["metadata"]["name"].as_str().unwrap_or_default();
        let name = name.rsplit(':').next().unwrap_or_default();
        files.push((at(&format!("files/user-roles/{name}.yaml")), serde_saphyr::to_string(&role)?));
    }
    Ok(files)
}
