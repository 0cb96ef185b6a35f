//! The CRD comes after the operator, goes, and comes again.

use api::nginx::conditions::{READY, reason};
use api::nginx::crd::Stage;
use lab::kit::TestNamespace;
use serde_json::json;

use crate::support::{Instance, Operator, Outcome, install_crd, lab_alone, remove_crd};

#[tokio::test]
async fn the_operator_waits_for_its_definition() {
    let (lab, alone) = lab_alone().await;
    let test = TestNamespace::new(lab, "late").await.unwrap();
    let done = test
        .run(async |test| -> Outcome {
            let operator = Operator::start(test);
            for name in ["first", "second"] {
                install_crd(&test.client, Stage::First).await?;
                let web = Instance::create(test, name, json!({})).await?;
                web.says(READY, "True", reason::RECONCILED).await?;
                remove_crd(&test.client).await?;
            }
            operator.stop().await;
            Ok(())
        })
        .await;
    alone.end(lab).await.unwrap();
    done.unwrap();
}
