use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, ObjectReference};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use runtime::events::{Recorder, Severity};

use crate::server;

async fn object(client: &Client, namespace: &str) -> ObjectReference {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let mut object = ConfigMap::default();
    object.metadata.name = Some("example-etcd-cluster".into());
    api.create(&PostParams::default(), &object).await.unwrap().object_ref(&())
}

#[tokio::test]
async fn events_have_the_shape_that_users_know_and_are_counted() {
    let client = server::client().await;
    let namespace = server::namespace(&client).await;
    let about = object(&client, &namespace).await;
    let recorder = Recorder::new(client.clone(), "etcd-operator-5d9c-x2v4f", server::metrics());
    let message = "Existing member example-etcd-cluster-bl5xbnm89n removed from the cluster";
    for _ in 0..3 {
        recorder.publish(&about, Severity::Normal, "Member Removed", message).await;
    }
    let events: Api<Event> = Api::namespaced(client.clone(), &namespace);
    let all = events.list(&ListParams::default()).await.unwrap().items;
    let [event] = all.as_slice() else { panic!("{all:?}") };
    // As the coreos operator wrote them.
    assert_eq!(event.type_.as_deref(), Some("Normal"));
    assert_eq!(event.reason.as_deref(), Some("Member Removed"));
    assert_eq!(event.message.as_deref(), Some(message));
    let source = event.source.as_ref().unwrap();
    assert_eq!(source.component.as_deref(), Some("etcd-operator-5d9c-x2v4f"));
    assert_eq!(event.reporting_component.as_deref(), Some(""));
    assert_eq!(event.count, Some(3));
    assert_eq!(event.event_time, None);
    assert!(event.first_timestamp.is_some() && event.last_timestamp >= event.first_timestamp);
    assert_eq!(event.involved_object, about);

    // Events expire; the next one like it is written anew.
    events.delete(&event.name_any(), &DeleteParams::default()).await.unwrap();
    recorder.publish(&about, Severity::Normal, "Member Removed", message).await;
    let all = events.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(all.iter().map(|event| event.count).collect::<Vec<_>>(), [Some(1)]);
}

#[tokio::test]
async fn objects_without_a_namespace_have_events_too() {
    let client = server::client().await;
    let name = server::namespace(&client).await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let about = namespaces.get(&name).await.unwrap().object_ref(&());
    assert_eq!(about.namespace, None);
    let recorder = Recorder::new(client.clone(), "op", server::metrics());
    recorder.publish(&about, Severity::Warning, "Seen", "once").await;
    let events: Api<Event> = Api::namespaced(client, "default");
    let of_object = ListParams::default().fields(&format!("involvedObject.name={name}"));
    let all = events.list(&of_object).await.unwrap().items;
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].type_.as_deref(), Some("Warning"));
}
