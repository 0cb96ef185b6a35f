//! The one thing that the operator writes into its CRD: whom the API server shall trust.

use api::nginx::crd::WEBHOOK_SERVICE;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, WebhookClientConfig,
};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use thiserror::Error;
use tracing::info;

use crate::NAME;

#[derive(Debug, Error)]
#[error("cannot write the webhook's authority into CRD {name}: {source}")]
pub struct DefinitionError {
    name: String,
    source: kube::Error,
}

/// Writes the authorities into the CRD, if it points to our Service and does not have them yet. False if somebody else
/// wrote at the same time: then the API server may not trust them yet, and the watch brings us back.
pub async fn inject(
    crds: &Api<CustomResourceDefinition>,
    crd: &CustomResourceDefinition,
    namespace: &str,
    authorities: &str,
) -> Result<bool, DefinitionError> {
    let Some(patch) = patch(crd, namespace, authorities) else { return Ok(true) };
    let name = crd.name_any();
    let params = PatchParams { field_manager: Some(NAME.to_owned()), ..PatchParams::default() };
    match crds.patch(&name, &params, &Patch::Merge(patch)).await {
        Ok(_) => {
            info!(crd = name, "the API server now trusts the conversion webhook");
            Ok(true)
        }
        Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => Ok(false),
        Err(source) => Err(DefinitionError { name, source }),
    }
}

fn patch(crd: &CustomResourceDefinition, namespace: &str, authorities: &str) -> Option<Value> {
    let config = client_config(crd)?;
    let service = config.service.as_ref()?;
    if service.name != WEBHOOK_SERVICE || service.namespace != namespace {
        return None;
    }
    let wanted = k8s_openapi::ByteString(authorities.as_bytes().to_vec());
    (config.ca_bundle.as_ref() != Some(&wanted)).then(|| {
        json!({
            "metadata": { "uid": crd.uid(), "resourceVersion": crd.resource_version() },
            "spec": { "conversion": { "webhook": { "clientConfig": { "caBundle": wanted } } } },
        })
    })
}

fn client_config(crd: &CustomResourceDefinition) -> Option<&WebhookClientConfig> {
    crd.spec.conversion.as_ref()?.webhook.as_ref()?.client_config.as_ref()
}

#[cfg(test)]
mod tests {
    use api::nginx::crd::{Stage, crd};

    use super::*;

    #[test]
    fn only_our_own_webhook_is_written_and_only_if_it_differs() {
        let with_webhook = crd(Stage::Transition, "ns");
        let patched = patch(&with_webhook, "ns", "A").unwrap();
        assert_eq!(patched["spec"]["conversion"]["webhook"]["clientConfig"], json!({ "caBundle": "QQ==" }));
        assert_eq!(patch(&with_webhook, "elsewhere", "A"), None);
        assert_eq!(patch(&crd(Stage::First, "ns"), "ns", "A"), None);

        let mut done = with_webhook;
        let webhook = done.spec.conversion.as_mut().unwrap().webhook.as_mut().unwrap();
        webhook.client_config.as_mut().unwrap().ca_bundle = Some(k8s_openapi::ByteString(b"A".to_vec()));
        assert_eq!(patch(&done, "ns", "A"), None);
        assert!(patch(&done, "ns", "B").is_some());
    }
}
