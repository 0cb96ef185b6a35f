//! What must not be written is refused, with a message that says what to write.

use api::nginx::Version;
use api::nginx::crd::Stage;
use lab::kit::TestNamespace;
use serde_json::{Value, json};

use crate::support::{Outcome, install_crd, lab_alone};

async fn refused(test: &TestNamespace<'_>, version: Version, name: &str, spec: &Value) -> Option<String> {
    let object = json!({
        "apiVersion": version.api_version(), "kind": "NginxOperator", "metadata": { "name": name }, "spec": spec,
    });
    let done = test.kubectl_with_input(&["create", "--dry-run=server", "-f", "-"], &object.to_string()).await;
    done.err().map(|error| error.to_string())
}

#[tokio::test]
async fn bad_input_is_refused_with_what_to_write() {
    let (lab, alone) = lab_alone().await;
    let test = TestNamespace::new(lab, "input").await.unwrap();
    let done = test
        .run(async |test| -> Outcome {
            install_crd(&test.client, Stage::First).await?;
            let long = "n".repeat(64);
            let one = [
                ("web", json!({ "port": 0 }), "port must be 1 to 65535"),
                ("web", json!({ "port": 70000 }), "port must be 1 to 65535"),
                ("web", json!({ "port": "80" }), "must be of type integer"),
                ("web", json!({ "replicas": -1 }), "replicas must be 0 or more"),
                ("web", json!({ "prot": 80 }), "unknown field \"spec.prot\""),
                ("web", json!({ "image": "two words" }), "such as nginx:1.27"),
                ("web", json!({ "image": "" }), "such as nginx:1.27"),
                ("web", json!({ "forceRedeploy": 1 }), "must be of type string"),
                (long.as_str(), json!({}), "at most 63 characters"),
                ("my.web", json!({}), "such as my-nginx"),
                ("1web", json!({}), "such as my-nginx"),
            ];
            for (name, spec, message) in one {
                let error = refused(test, Version::V1alpha1, name, &spec).await;
                assert!(error.as_deref().is_some_and(|error| error.contains(message)), "{spec}: {error:?}");
            }
            for spec in [
                json!({}),
                json!({ "replicas": 0 }),
                json!({ "forceRedeploy": "" }),
                json!({ "image": "a.b:5000/c/d@sha256:00" }),
            ] {
                assert_eq!(refused(test, Version::V1alpha1, "web", &spec).await, None, "{spec}");
            }
            crate::support::remove_crd(&test.client).await?;
            install_crd(&test.client, Stage::Retired).await?;
            let port = |name: &str, port: i32| json!({ "name": name, "port": port });
            let two = [
                (json!([port("http", 80), port("http", 81)]), "a name of its own, such as http and admin"),
                (json!([port("http", 80), port("web", 80)]), "a number of its own"),
                (json!([port("http", 0)]), "port must be 1 to 65535"),
                (json!([port("HTTP", 80)]), "such as http"),
                (json!([port("80", 80)]), "such as http"),
                (json!([port("a-name-too-long-", 80)]), "15"),
                (json!([]), "at least 1"),
            ];
            for (ports, message) in two {
                let error = refused(test, Version::V1alpha2, "web", &json!({ "ports": ports })).await;
                assert!(error.as_deref().is_some_and(|error| error.contains(message)), "{ports}: {error:?}");
            }
            for spec in [json!({}), json!({ "ports": [port("a", 1), port("b", 65535)] })] {
                assert_eq!(refused(test, Version::V1alpha2, "web", &spec).await, None, "{spec}");
            }
            Ok(())
        })
        .await;
    alone.end(lab).await.unwrap();
    done.unwrap();
}
