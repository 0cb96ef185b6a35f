//! A namespace for one test: made fresh, removed at the end, bundled up first if the test failed.

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, ResourceExt as _};
use std::time::Duration;

use super::{bundle, wait_for};
use crate::Lab;
use crate::error::{Error, Result};
use crate::process::run_with_input;
use crate::programs::Program;

pub struct TestNamespace<'a> {
    pub lab: &'a Lab,
    pub client: Client,
    pub name: String,
    /// Made for this test, so that it goes with it.
    made: bool,
}

impl<'a> TestNamespace<'a> {
    /// `prefix` is what a person will recognise the test by.
    pub async fn new(lab: &'a Lab, prefix: &str) -> Result<Self> {
        let client = lab.client().await?;
        let api: Api<Namespace> = Api::all(client.clone());
        let mut namespace = Namespace::default();
        namespace.metadata.generate_name = Some(format!("{prefix}-"));
        namespace.metadata.labels = Some([("lab/test".to_owned(), prefix.to_owned())].into());
        let name = api.create(&PostParams::default(), &namespace).await?.name_any();
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &name);
        wait_for(&accounts, "default", Duration::from_mins(1), "service account to be there", |_| true)
            .await?;
        Ok(Self { lab, client, name, made: true })
    }

    /// A namespace that is there anyway, such as `default`: what the test leaves in it stays.
    pub async fn existing(lab: &'a Lab, name: &str) -> Result<Self> {
        Ok(Self { lab, client: lab.client().await?, name: name.to_owned(), made: false })
    }

    /// Objects of this namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// What a user would type: `kubectl` in this namespace; gives what it printed, or what went wrong.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.kubectl_with_input(arguments, "").await
    }

    /// The same with something on standard input, for `apply -f -`.
    pub async fn kubectl_with_input(&self, arguments: &[&str], input: &str) -> Result<String> {
        let kubectl = self.lab.programs.path(Program::Kubectl)?.display().to_string();
        let kubeconfig = format!("--kubeconfig={}", self.lab.kubeconfig().display());
        let namespace = format!("--namespace={}", self.name);
        // By default kubectl keeps what it learnt of an address for hours, and another lab may have had ours.
        let cache =
            format!("--cache-dir={}", self.lab.layout.root.join("kubectl").join(&self.name).display());
        let mut argv: Vec<String> = vec![kubectl, kubeconfig, namespace, cache];
        argv.extend(arguments.iter().map(ToString::to_string));
        let input = input.to_owned();
        let run = tokio::task::spawn_blocking(move || {
            run_with_input(&argv.iter().map(String::as_str).collect::<Vec<_>>(), &input)
        });
        run.await.map_err(|e| Error::other("kubectl", e))?
    }

    /// Runs the test, then removes the namespace; what was there when it failed is kept in a folder that is printed.
    pub async fn run<E: std::fmt::Display>(
        self,
        test: impl AsyncFnOnce(&Self) -> Result<(), E>,
    ) -> Result<(), String> {
        use futures::FutureExt as _;
        let done = std::panic::AssertUnwindSafe(test(&self)).catch_unwind().await;
        let failure = match &done {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(panic) => Some(panic_text(panic.as_ref())),
        };
        let failure = match failure {
            None => None,
            Some(message) => {
                let folder = bundle::collect(&self).await;
                Some(format!("{message}\n\nwhat was there is in {folder}"))
            }
        };
        let removed = if self.made { self.remove().await } else { Ok(()) };
        match failure {
            Some(message) => Err(message),
            None => removed.map_err(|e| format!("namespace {}: {e}", self.name)),
        }
    }

    async fn remove(&self) -> Result<()> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        api.delete(&self.name, &DeleteParams::background()).await?;
        Ok(())
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
        .unwrap_or_else(|| "panicked".into())
}
