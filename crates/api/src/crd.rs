//! The `CustomResourceDefinition`s, made from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use crate::{EtcdBackup, EtcdCluster, EtcdRestore};

/// What Kubernetes takes for a quantity; the types alone would let `resources.requests.cpu: much` pass.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

pub fn etcd_cluster_crd() -> CustomResourceDefinition {
    finished(EtcdCluster::crd())
}

pub fn etcd_backup_crd() -> CustomResourceDefinition {
    finished(EtcdBackup::crd())
}

pub fn etcd_restore_crd() -> CustomResourceDefinition {
    finished(EtcdRestore::crd())
}

/// The files of this repository that are made from the types, with the path of each.
pub fn files() -> [(&'static str, CustomResourceDefinition); 4] {
    [
        ("deploy/crds/etcdclusters.yaml", etcd_cluster_crd()),
        ("deploy/crds/etcdbackups.yaml", etcd_backup_crd()),
        ("deploy/crds/etcdrestores.yaml", etcd_restore_crd()),
        ("example/ch03/etcd-operator-crd.yaml", etcd_cluster_crd()),
    ]
}

pub(crate) fn finished(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            tidy(schema);
        }
    }
    crd
}

/// Makes a schema say what people write. Quantities, which are all that ours have of integer-or-string, get a line
/// instead of Kubernetes' page. Nothing is nullable, so that the API server drops a null as if it were not written.
fn tidy(schema: &mut JSONSchemaProps) {
    if schema.x_kubernetes_int_or_string == Some(true) {
        schema.description = Some("A quantity, such as 500m, 2 or 8Gi.".into());
        schema.pattern = Some(QUANTITY.into());
    }
    schema.nullable = None;
    schema.enum_.iter_mut().for_each(|values| values.retain(|JSON(value)| !value.is_null()));

    schema.properties.iter_mut().flat_map(|properties| properties.values_mut()).for_each(tidy);
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => tidy(items),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(tidy),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        tidy(values);
    }
}
