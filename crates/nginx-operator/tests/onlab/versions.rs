//! From an operator that knows one version of the API to one that knows two, with instances that live on.

use std::time::{Duration, Instant};

use api::nginx::Version::{V1alpha1, V1alpha2};
use api::nginx::conditions::{READY, reason};
use api::nginx::crd::Stage;
use api::nginx::{CRD_NAME, Version};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use lab::kit::{TestNamespace, gone, lab_alone, wait_for};
use lab::wait::until;
use nginx_operator::NAME;
use serde_json::json;

use crate::support::{
    Client, Instance, LIMIT, Outcome, apply_crd, clean, install, remove_crd, scale_operator,
};

/// The garbage collector asks every 30 s which resources there are.
const COLLECTOR_LOOKS: Duration = Duration::from_secs(40);

fn stored(crd: &CustomResourceDefinition) -> Vec<String> {
    crd.status.as_ref().and_then(|status| status.stored_versions.clone()).unwrap_or_default()
}

fn trusted(crd: &CustomResourceDefinition) -> bool {
    let webhook = crd.spec.conversion.as_ref().and_then(|conversion| conversion.webhook.as_ref());
    webhook
        .and_then(|webhook| webhook.client_config.as_ref())
        .is_some_and(|config| config.ca_bundle.is_some())
}

#[tokio::test]
async fn the_operator_is_upgraded_and_the_old_version_of_the_api_retired() {
    let (lab, _turn) = lab_alone().await.unwrap();
    let test = TestNamespace::new(lab, "nginx-versions").await.unwrap();
    let name = test.name.clone();
    let done = test
        .run(async |test| -> Outcome {
            let crds: Api<CustomResourceDefinition> = Api::all(test.client.clone());
            remove_crd(&test.client).await?;
            apply_crd(test, Stage::First).await?;
            install(test, V1alpha1).await?;
            let web = Instance::create(test, V1alpha1, "web", json!({ "port": 8080, "replicas": 2 })).await?;
            web.healthy().await?;
            let client = Client::start(test, "web", 8080).await?;
            let pods = web.pods().await?;

            // Serve the webhook, then add the version, then store in it.
            install(test, V1alpha2).await?;
            apply_crd(test, Stage::Transition).await?;
            wait_for(&crds, CRD_NAME, LIMIT, "to trust the webhook", trusted).await?;
            let both = until("both versions to be readable", LIMIT, async || {
                Ok(match (web.get(V1alpha1).await, web.get(V1alpha2).await) {
                    (Ok(old), Ok(new)) => Ok((old, new)),
                    (old, new) => Err(format!("{:?} {:?}", old.err(), new.err())),
                })
            })
            .await?;
            assert_eq!(both.0.data["spec"]["port"], 8080);
            assert_eq!(both.1.data["spec"]["ports"], json!([{ "name": "http", "port": 8080 }]));
            assert_eq!(both.0.uid(), both.1.uid());

            apply_crd(test, Stage::Second).await?;
            let crd =
                wait_for(&crds, CRD_NAME, LIMIT, "to store v1alpha2 only", |crd| stored(crd) == ["v1alpha2"])
                    .await?;
            assert!(trusted(&crd), "an apply does not take the authority away");
            let new = Instance::create(
                test,
                V1alpha2,
                "new",
                json!({ "ports": [{ "name": "http", "port": 80 }, { "name": "admin", "port": 8081 }] }),
            )
            .await?;
            new.healthy().await?;
            let admin = Client::start(test, "new", 8081).await?;

            // A client of the old version changes what it sees, and only that.
            test.kubectl(&[
                "patch",
                "nginxoperators.v1alpha1.operator.example.com",
                "new",
                "--type=merge",
                "-p",
                r#"{"spec":{"port":81,"replicas":2}}"#,
            ])
            .await?;
            let seen = new.get(V1alpha2).await?;
            assert_eq!(
                seen.data["spec"]["ports"],
                json!([{ "name": "http", "port": 81 }, { "name": "admin", "port": 8081 }])
            );
            assert_eq!(seen.data["spec"]["replicas"], 2);
            new.healthy().await?;
            admin.saw_no_failure().await?;

            apply_crd(test, Stage::Retired).await?;
            until("v1alpha1 to be gone", LIMIT, async || {
                Ok(if web.get(V1alpha1).await.is_err() { Ok(()) } else { Err("still served") })
            })
            .await?;
            let web = Instance::create(
                test,
                V1alpha2,
                "web",
                json!({ "ports": [{ "name": "http", "port": 8080 }], "replicas": 2 }),
            )
            .await?;
            web.healthy().await?;
            assert_eq!(
                web.deployment().await?.owner_references()[0].api_version,
                "operator.example.com/v1alpha2"
            );
            assert_eq!(web.pods().await?, pods, "nothing was restarted");
            client.saw_no_failure().await?;

            // What the operator made for itself goes with its Deployment.
            let (leases, secrets): (Api<Lease>, Api<Secret>) = (test.api(), test.api());
            leases.get(NAME).await?;
            test.kubectl(&["delete", "deployment", NAME]).await?;
            gone(&leases, NAME, LIMIT).await?;
            gone(&secrets, "nginx-operator-webhook", LIMIT).await?;
            Ok(())
        })
        .await;
    clean(&lab.client().await.unwrap(), &name).await.unwrap();
    done.unwrap();
}

#[tokio::test]
async fn without_the_webhook_nothing_is_lost_and_others_go_on() {
    let (lab, _turn) = lab_alone().await.unwrap();
    let test = TestNamespace::new(lab, "nginx-webhook").await.unwrap();
    let name = test.name.clone();
    let done = test
        .run(async |test| -> Outcome {
            remove_crd(&test.client).await?;
            apply_crd(test, Stage::First).await?;
            let web = Instance::create(test, V1alpha1, "web", json!({ "replicas": 1 })).await?;
            install(test, V1alpha2).await?;
            apply_crd(test, Stage::Transition).await?;
            readable(&web, V1alpha2).await?;
            web.healthy().await?;
            let before = web.get(V1alpha1).await?;

            // Even the certificate is lost with the operator.
            scale_operator(test, 0).await?;
            test.api::<Secret>().delete("nginx-operator-webhook", &DeleteParams::default()).await?;

            let error = web.get(V1alpha2).await.expect_err("there is no webhook").to_string();
            assert!(error.contains("conversion webhook"), "{error}");
            let still = web.get(V1alpha1).await?;
            assert_eq!(still.data["spec"], before.data["spec"], "the stored version needs no webhook");
            // Garbage of others is still collected, also once the collector has looked for new resources.
            let configs: Api<ConfigMap> = test.api();
            let began = Instant::now();
            while began.elapsed() < COLLECTOR_LOOKS {
                let owner = configs.create(&PostParams::default(), &config("owner", None)).await?;
                configs.create(&PostParams::default(), &config("owned", Some(&owner))).await?;
                configs.delete("owner", &DeleteParams::background()).await?;
                gone(&configs, "owned", LIMIT).await?;
            }

            scale_operator(test, 2).await?;
            let back = readable(&web, V1alpha2).await?;
            assert_eq!(back.data["spec"]["ports"], json!([{ "name": "http", "port": 80 }]));
            web.says(READY, "True", reason::RECONCILED).await?;

            // A certificate that lives for a minute is renewed in time, and is not missed when it is over.
            let args = r#"[{"op":"replace","path":"/spec/template/spec/containers/0/command","value":["nginx-operator","run","--certificate-seconds=60"]}]"#;
            scale_operator(test, 0).await?;
            test.api::<Secret>().delete("nginx-operator-webhook", &DeleteParams::default()).await?;
            test.kubectl(&["patch", "deployment/nginx-operator", "--type=json", "-p", args]).await?;
            scale_operator(test, 2).await?;
            readable(&web, V1alpha2).await?;
            let (old, over) = (certificate(test).await?, Instant::now() + Duration::from_mins(1));
            until("a new certificate after the old one's end", LIMIT, async || {
                // Not a single question fails on the way.
                web.get(V1alpha2).await.map_err(|error| lab::Error::other("conversion", error))?;
                let new = certificate(test).await.map_err(|error| lab::Error::other("secret", error))?;
                Ok(if new != old && Instant::now() > over { Ok(()) } else { Err("the old one's time") })
            })
            .await?;
            Ok(())
        })
        .await;
    clean(&lab.client().await.unwrap(), &name).await.unwrap();
    done.unwrap();
}

async fn readable(instance: &Instance<'_>, version: Version) -> Outcome<DynamicObject> {
    let read = until("the instance to be readable", LIMIT, async || {
        Ok(instance.get(version).await.map_err(|error| error.to_string()))
    });
    Ok(read.await?)
}

async fn certificate(test: &TestNamespace<'_>) -> Outcome<Vec<u8>> {
    let secret: Secret = test.api::<Secret>().get("nginx-operator-webhook").await?;
    Ok(secret.data.and_then(|mut data| data.remove("tls.crt")).map(|bytes| bytes.0).unwrap_or_default())
}

fn config(name: &str, owner: Option<&ConfigMap>) -> ConfigMap {
    let mut config = ConfigMap::default();
    config.metadata.name = Some(name.to_owned());
    if let Some(owner) = owner {
        use kube::Resource as _;
        config.metadata.owner_references = owner.controller_owner_ref(&()).map(|reference| vec![reference]);
    }
    config
}
