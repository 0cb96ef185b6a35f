//! Objects in a cache, as text: a fifth of what their types would take, and read only when they are looked at.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// What a cache needs to know of an object, and the rest of it as JSON.
pub struct Kept<K> {
    /// Name, namespace and labels alone.
    metadata: ObjectMeta,
    text: Box<str>,
    kind: PhantomData<fn() -> K>,
}

impl<K: DeserializeOwned> Kept<K> {
    pub fn read(&self) -> Result<K, serde_json::Error> {
        serde_json::from_str(&self.text)
    }
}

impl<'de, K> Deserialize<'de> for Kept<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = Value::deserialize(deserializer)?;
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
            return Err(D::Error::custom("an object without metadata"));
        };
        metadata.remove("managedFields");
        let full = ObjectMeta::deserialize(&object["metadata"]).map_err(D::Error::custom)?;
        let ObjectMeta { name, namespace, labels, resource_version, .. } = full;
        let metadata = ObjectMeta { name, namespace, labels, resource_version, ..ObjectMeta::default() };
        Ok(Self { metadata, text: object.to_string().into_boxed_str(), kind: PhantomData })
    }
}

impl<K> Clone for Kept<K> {
    fn clone(&self) -> Self {
        Self { metadata: self.metadata.clone(), text: self.text.clone(), kind: PhantomData }
    }
}

impl<K> fmt::Debug for Kept<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<K: Resource> Resource for Kept<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic)
    }

    fn group(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dynamic)
    }

    fn version(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dynamic)
    }

    fn plural(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;
    use kube::ResourceExt;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_kept_reads_as_it_was() {
        let object = json!({
            "metadata": { "name": "web", "namespace": "ns", "uid": "u", "labels": { "a": "b" }, "managedFields": [{}] },
            "spec": { "ports": [{ "port": 80 }] },
        });
        let kept: Kept<Service> = serde_json::from_value(object.clone()).unwrap();
        assert_eq!((kept.name_any().as_str(), kept.labels()["a"].as_str()), ("web", "b"));
        let mut expected: Service = serde_json::from_value(object).unwrap();
        expected.metadata.managed_fields = None;
        assert_eq!(kept.read().unwrap(), expected);
        assert!(serde_json::from_value::<Kept<Service>>(json!({})).is_err());
    }
}
