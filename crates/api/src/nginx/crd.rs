//! The CRD in the stages of its life. Each can be applied over the one before, and nothing stored is lost.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, ServiceReference, WebhookClientConfig,
    WebhookConversion,
};
use kube::CustomResourceExt;

use super::{Version, v1alpha1, v1alpha2};

/// The Service of the conversion webhook.
pub const WEBHOOK_SERVICE: &str = "nginx-operator-webhook";
pub const WEBHOOK_PATH: &str = "/convert";
/// Where the webhook is looked for unless the manifests are printed for another namespace.
pub const DEFAULT_NAMESPACE: &str = "default";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// v1alpha1 and nothing else.
    First,
    /// Both versions are served and converted; v1alpha1 is still the stored one, so that there is a way back.
    Transition,
    /// Both are served; v1alpha2 is stored.
    Second,
    /// v1alpha1 is retired: no longer served, and nothing is stored in it any more.
    Retired,
}

/// The CRD of one stage, its webhook in this namespace.
pub fn crd(stage: Stage, namespace: &str) -> CustomResourceDefinition {
    let (mut crd, old) = match stage {
        Stage::First => (v1alpha1::NginxOperator::crd(), None),
        _ => (v1alpha2::NginxOperator::crd(), Some(v1alpha1::NginxOperator::crd())),
    };
    crd.spec.versions.extend(old.into_iter().flat_map(|old| old.spec.versions));
    let stored = match stage {
        Stage::First | Stage::Transition => Version::V1alpha1,
        Stage::Second | Stage::Retired => Version::V1alpha2,
    };
    for version in &mut crd.spec.versions {
        version.storage = version.name == stored.as_str();
        if stage == Stage::Retired && version.name == Version::V1alpha1.as_str() {
            version.served = false;
        }
        if stage != Stage::First && version.name == Version::V1alpha1.as_str() {
            version.deprecated = Some(true);
            version.deprecation_warning = Some(
                "operator.example.com/v1alpha1 NginxOperator is deprecated; use v1alpha2, with spec.ports"
                    .into(),
            );
        }
    }
    if stage != Stage::First {
        crd.spec.conversion = Some(conversion(namespace));
    }
    crate::crd::finished(crd)
}

/// The operator adds its CA.
fn conversion(namespace: &str) -> CustomResourceConversion {
    let service = ServiceReference {
        name: WEBHOOK_SERVICE.to_owned(),
        namespace: namespace.to_owned(),
        path: Some(WEBHOOK_PATH.to_owned()),
        port: Some(443),
    };
    CustomResourceConversion {
        strategy: "Webhook".to_owned(),
        webhook: Some(WebhookConversion {
            client_config: Some(WebhookClientConfig {
                service: Some(service),
                ..WebhookClientConfig::default()
            }),
            conversion_review_versions: vec!["v1".to_owned()],
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(stage: Stage) -> Vec<(String, bool, bool)> {
        let versions = crd(stage, "ns").spec.versions.into_iter();
        versions.map(|version| (version.name, version.served, version.storage)).collect()
    }

    #[test]
    fn each_stage_serves_and_stores_what_it_says() {
        let row = |name: &str, served, storage| (name.to_owned(), served, storage);
        assert_eq!(versions(Stage::First), [row("v1alpha1", true, true)]);
        assert_eq!(versions(Stage::Transition), [row("v1alpha2", true, false), row("v1alpha1", true, true)]);
        assert_eq!(versions(Stage::Second), [row("v1alpha2", true, true), row("v1alpha1", true, false)]);
        assert_eq!(versions(Stage::Retired), [row("v1alpha2", true, true), row("v1alpha1", false, false)]);
    }
}
