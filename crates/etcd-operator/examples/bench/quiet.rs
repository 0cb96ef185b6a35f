//! Many clusters at rest, and other people's objects beside them.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::PostParams;
use lab::kit::TestNamespace;

use crate::audit::Audit;
use crate::{NEW, Outcome, create, delete, ready};

const OBJECTS: usize = 300;
const BYTES: usize = 500 * 1024;
/// Status and labels have settled, and whatever is written late was written.
const SETTLE: Duration = Duration::from_mins(1);
/// Clusters by size.
const SIZES: [usize; 20] = [3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];

/// What the operator asks of the API server while twenty clusters need nothing.
pub async fn requests(test: &TestNamespace<'_>, quiet: Duration) -> Outcome<f64> {
    let names: Vec<String> = (0..SIZES.len()).map(|number| format!("rest-{number}")).collect();
    for (name, size) in names.iter().zip(SIZES) {
        create(test, name, NEW, size).await?;
    }
    for name in &names {
        ready(test, name).await?;
    }
    tokio::time::sleep(SETTLE).await;
    let audit = Audit::from_now(test)?;
    tokio::time::sleep(quiet).await;
    let seen = audit.requests()?;
    for name in &names {
        delete(test, name).await?;
    }
    Ok(seen)
}

/// As many Secrets and `ConfigMaps` as an operator that caches all of them would choke on.
pub async fn clutter(test: &TestNamespace<'_>) -> Outcome {
    let text = "x".repeat(BYTES);
    let made = stream::iter(0..OBJECTS).map(|number| {
        let (secrets, maps, text) = (test.api::<Secret>(), test.api::<ConfigMap>(), text.clone());
        async move {
            let mut secret = Secret::default();
            secret.metadata.name = Some(format!("unrelated-{number}"));
            secret.data = Some([("x".to_owned(), ByteString(text.clone().into_bytes()))].into());
            secrets.create(&PostParams::default(), &secret).await?;
            let mut map = ConfigMap::default();
            map.metadata.name = Some(format!("unrelated-{number}"));
            map.data = Some([("x".to_owned(), text)].into());
            maps.create(&PostParams::default(), &map).await?;
            Ok::<_, kube::Error>(())
        }
    });
    made.buffer_unordered(4).try_collect::<()>().await?;
    Ok(())
}
