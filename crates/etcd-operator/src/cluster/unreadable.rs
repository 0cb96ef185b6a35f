//! An `EtcdCluster` that cannot be read, which only a CRD of somebody else lets in: its status says so, and nothing is done.

use api::EtcdCluster;
use api::conditions::{self, Condition, ConditionStatus};
use domain::{ConditionKind, Event, Severity};
use jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::{Resource, ResourceExt};
use serde_json::json;

use super::Context;
use super::watches::Guarded;

/// Says it in status, and once as an event; the rest of status stays as it was.
pub async fn tell(context: &Context, cluster: &Guarded, error: &str) -> Result<(), kube::Error> {
    let (namespace, kind) = (cluster.namespace().unwrap_or_default(), ApiResource::erase::<EtcdCluster>(&()));
    let api: Api<DynamicObject> = Api::namespaced_with(context.client.clone(), &namespace, &kind);
    let Some(mut object) = api.get_opt(&cluster.name_any()).await? else { return Ok(()) };
    let message = format!("the EtcdCluster cannot be read, nothing is done until it is corrected: {error}");
    if !say(&mut object, &message, Timestamp::now()) {
        return Ok(());
    }
    api.replace_status(&cluster.name_any(), &PostParams::default(), &object).await?;
    let reason = ConditionKind::SpecInvalid.as_str().to_owned();
    let event = Event { severity: Severity::Warning, reason, message };
    context.publish_about(&cluster.object_ref(&()), &event).await;
    Ok(())
}

/// Whether that is news.
fn say(object: &mut DynamicObject, message: &str, now: Timestamp) -> bool {
    let invalid = ConditionKind::SpecInvalid.as_str();
    let said = object.data.pointer("/status/conditions").cloned().unwrap_or_default();
    // What is no condition at all is written anew.
    let before: Vec<Condition> = serde_json::from_value(said).unwrap_or_default();
    let mut after = before.clone();
    for (kind, status) in [
        (ConditionKind::SpecInvalid, ConditionStatus::True),
        (ConditionKind::Ready, ConditionStatus::False),
        (ConditionKind::Progressing, ConditionStatus::False),
    ] {
        let condition = Condition::new(kind.as_str(), status, invalid, message);
        conditions::set(&mut after, condition.observed(object.metadata.generation), now);
    }
    if after == before {
        return false;
    }
    if !object.data["status"].is_object() {
        object.data["status"] = json!({});
    }
    object.data["status"]["conditions"] = json!(after);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn object(data: Value) -> DynamicObject {
        let mut object = DynamicObject::new("c", &ApiResource::erase::<EtcdCluster>(&()));
        object.metadata.generation = Some(2);
        object.data = data;
        object
    }

    #[test]
    fn status_says_it_once_and_keeps_the_rest() {
        let now = Timestamp::from_second(10).unwrap();
        let mut seen = object(json!({"spec": {"size": "three"}, "status": {"phase": "Running"}}));
        assert!(say(&mut seen, "no number", now));
        assert_eq!(seen.data["status"]["phase"], "Running");
        let told = &seen.data["status"]["conditions"];
        assert_eq!((&told[0]["type"], &told[0]["status"]), (&json!("SpecInvalid"), &json!("True")));
        assert_eq!((&told[1]["type"], &told[1]["status"]), (&json!("Ready"), &json!("False")));
        assert_eq!((&told[0]["message"], &told[0]["observedGeneration"]), (&json!("no number"), &json!(2)));
        assert!(!say(&mut seen, "no number", Timestamp::from_second(20).unwrap()));
        assert!(say(&mut seen, "another", now));
    }

    #[test]
    fn a_status_that_is_none_is_made() {
        for data in [json!({"spec": 7}), json!({"status": null}), json!({"status": {"conditions": 7}})] {
            assert!(say(&mut object(data), "no", Timestamp::UNIX_EPOCH));
        }
    }
}
