//! A pod that asks a Service again and again, and counts.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{Api, LogParams, PostParams};
use lab::kit::{TestNamespace, wait_for};
use lab::wait::until;
use serde_json::json;

use super::{LIMIT, Outcome};

pub struct Client<'a> {
    test: &'a TestNamespace<'static>,
    name: String,
}

impl<'a> Client<'a> {
    /// Asks the Service on this port from now on, each time over a new connection, and gives once it has an answer.
    pub async fn start(test: &'a TestNamespace<'static>, service: &str, port: u16) -> Outcome<Self> {
        let name = format!("client-of-{service}-{port}");
        let found: Service = test.api::<Service>().get(service).await?;
        let ip = found.spec.and_then(|spec| spec.cluster_ip).unwrap_or_default();
        let script = format!(
            "until wget -q -T 5 -O /dev/null http://{ip}:{port}/; do sleep 0.1; done; echo ANSWERED; \
             while sleep 0.05; do wget -q -T 5 -O /dev/null http://{ip}:{port}/ && echo OK || echo FAILED; done"
        );
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": name },
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{ "name": "client", "image": "busybox:1.28.0-glibc", "command": ["sh", "-c", script] }],
            },
        }))?;
        test.api().create(&PostParams::default(), &pod).await?;
        wait_for(&test.api::<Pod>(), &name, LIMIT, "to run", |pod| {
            pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
        })
        .await?;
        let client = Self { test, name };
        until("the client to get an answer", LIMIT, async || {
            let log = client.log().await?;
            Ok(if log.contains("OK") { Ok(()) } else { Err(log) })
        })
        .await?;
        Ok(client)
    }

    async fn log(&self) -> lab::Result<String> {
        let pods: Api<Pod> = self.test.api();
        Ok(pods.logs(&self.name, &LogParams::default()).await?)
    }

    /// No question since the first answer was left without one.
    pub async fn saw_no_failure(&self) -> Outcome {
        // What is under way shall be counted, too.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let log = self.log().await?;
        let (answers, failures) = (log.matches("OK").count(), log.matches("FAILED").count());
        println!("{}: {answers} answers, {failures} failures", self.name);
        assert_eq!(failures, 0, "{} of {} questions failed", failures, answers + failures);
        assert!(answers > 10, "only {answers} answers");
        Ok(())
    }
}
