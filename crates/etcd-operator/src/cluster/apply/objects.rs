//! Steps that Kubernetes takes.

use super::super::backups;
use super::super::watches::Claim;
use super::{ApplyError, Hands, Outcome, refused};
use api::EtcdBackup;
use domain::{Name, Peer, Uid, Version};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{PartialObjectMetaExt, Status};
use kube::{Api, Resource, ResourceExt};
use resources::{Bootstrap, Cluster};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// The one field manager of everything that we apply.
const MANAGER: &str = "etcd-operator";

impl Hands<'_> {
    pub(super) async fn headless_service(&mut self) -> Result<Outcome, ApplyError> {
        let wanted = resources::headless_service(&self.build()?);
        match self.server_side("EnsureHeadlessService", &wanted).await? {
            Ok(service) => Ok(self.service_written(service)),
            Err(outcome) => Ok(outcome),
        }
    }

    pub(super) async fn client_service(&mut self) -> Result<Outcome, ApplyError> {
        let wanted = resources::client_service(&self.build()?);
        match self.server_side("EnsureClientService", &wanted).await? {
            Ok(service) => Ok(self.service_written(service)),
            Err(outcome) => Ok(outcome),
        }
    }

    fn service_written(&mut self, service: Service) -> Outcome {
        self.memory.own.services.created(service);
        Outcome::Done
    }

    pub(super) async fn budget(&mut self, min_available: u32) -> Result<Outcome, ApplyError> {
        let min_available = i32::try_from(min_available).unwrap_or(i32::MAX);
        let wanted = resources::pod_disruption_budget(&self.build()?, min_available);
        match self.server_side("SetBudget", &wanted).await? {
            Ok(budget) => self.memory.own.budgets.created(budget),
            Err(outcome) => return Ok(outcome),
        }
        Ok(Outcome::Done)
    }

    pub(super) async fn back_up(&mut self, of: &Name, version: Version) -> Result<Outcome, ApplyError> {
        let failed = |source| ApplyError::Kubernetes { step: "BackUp", source };
        self.memory.backups = None;
        let found = backups::all(self.context, self.cluster).await.map_err(failed)?;
        let Some(backup) = backups::find(&found, of) else {
            return Ok(Outcome::Stale(format!("EtcdBackup {of} is gone")));
        };
        let copy = backups::copy(self.cluster, backup, version);
        let namespace = self.cluster.namespace().unwrap_or_default();
        let api: Api<EtcdBackup> = Api::namespaced(self.context.client.clone(), &namespace);
        match api.create(&PostParams::default(), &copy).await {
            Ok(_) => Ok(Outcome::Done),
            Err(error) => refused("BackUp", error),
        }
    }

    pub(super) async fn create_seed(&mut self, name: &Name, version: Version) -> Result<Outcome, ApplyError> {
        let token = uuid();
        self.create_with_claim("CreateSeed", name, version, Bootstrap::Seed { token: &token }).await
    }

    pub(super) async fn create_member(
        &mut self,
        name: &Name,
        version: Version,
        peers: &[Peer],
        joining: &[Name],
    ) -> Result<Outcome, ApplyError> {
        let joining: Vec<_> =
            joining.iter().map(|name| (name.as_str(), self.seen.zone.peer_url(name.as_str()))).collect();
        let peers = peers.iter().map(|peer| (peer.name.as_str(), peer.url.as_str()));
        let joining = joining.iter().map(|(name, url)| (*name, url.as_str()));
        let peers = api::names::initial_cluster(peers.chain(joining));
        self.create_with_claim("CreateMember", name, version, Bootstrap::Join { initial_cluster: &peers })
            .await
    }

    pub(super) async fn resume_member(
        &mut self,
        name: &Name,
        version: Version,
        claim: &Uid,
    ) -> Result<Outcome, ApplyError> {
        let bootstrap = Bootstrap::Resume { inherited: self.seen.inherited.contains(claim) };
        let pod = self.pod(name, version, bootstrap, Some(claim.as_str()))?;
        self.create("ResumeMember", &pod).await
    }

    pub(super) async fn check_image(&mut self, version: Version, node: &Name) -> Result<Outcome, ApplyError> {
        let pod = resources::image_check_pod(&self.build()?, &version.to_string(), node.as_str());
        self.create("CheckImage", &pod).await
    }

    /// The pod of a new member, and its claim before it.
    pub(super) async fn create_with_claim(
        &mut self,
        step: &'static str,
        name: &Name,
        version: Version,
        bootstrap: Bootstrap<'_>,
    ) -> Result<Outcome, ApplyError> {
        let wanted = resources::persistent_volume_claim(&self.build()?, name.as_str());
        let known = self.seen.observation.claims.iter().find(|claim| claim.name == *name);
        let claim = match (wanted, known) {
            (None, _) => None,
            (Some(_), Some(known)) => Some(known.uid.to_string()),
            (Some(wanted), None) => {
                if let Err(error) = self.try_pod(&self.pod(name, version, bootstrap, None)?).await {
                    return refused(step, error);
                }
                match self.claim(step, &wanted).await? {
                    Ok(uid) => uid,
                    Err(outcome) => return Ok(outcome),
                }
            }
        };
        let pod = self.pod(name, version, bootstrap, claim.as_deref())?;
        self.create(step, &pod).await
    }

    /// A claim whose pod is refused, by a quota or a policy, is thrown away: to ask first keeps that from going on and on.
    async fn try_pod(&self, pod: &Pod) -> Result<(), kube::Error> {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        match self.api::<Pod>().create(&dry, pod).await {
            // It will say what it has to say.
            Err(kube::Error::Api(status)) if cannot_be_tried(&status) => Ok(()),
            tried => tried.map(drop),
        }
    }

    fn pod(
        &self,
        name: &Name,
        version: Version,
        bootstrap: Bootstrap<'_>,
        claim: Option<&str>,
    ) -> Result<Pod, ApplyError> {
        let cluster = self.build()?;
        Ok(resources::member_pod(&cluster, name.as_str(), &version.to_string(), bootstrap, claim))
    }

    async fn create(&mut self, step: &'static str, pod: &Pod) -> Result<Outcome, ApplyError> {
        match self.api::<Pod>().create(&PostParams::default(), pod).await {
            Ok(created) => {
                self.memory.own.pods.created(created);
                Ok(Outcome::Done)
            }
            Err(error) => refused(step, error),
        }
    }

    /// Makes a claim, and gives its UID.
    async fn claim(
        &mut self,
        step: &'static str,
        wanted: &PersistentVolumeClaim,
    ) -> Result<Result<Option<String>, Outcome>, ApplyError> {
        match self.api::<PersistentVolumeClaim>().create(&PostParams::default(), wanted).await {
            Ok(created) => {
                let uid = created.uid();
                self.memory
                    .own
                    .claims
                    .created(created.metadata.into_response_partial::<PersistentVolumeClaim>());
                Ok(Ok(uid))
            }
            Err(error) => refused(step, error).map(Err),
        }
    }

    pub(super) async fn mark_pod(
        &mut self,
        name: &Name,
        uid: &Uid,
        disarm: bool,
        serve: bool,
    ) -> Result<Outcome, ApplyError> {
        let patch = Patch::Merge(resources::mark_patch(uid.as_str(), disarm, serve));
        self.patch_pod("MarkPod", name, &patch).await
    }

    pub(super) async fn adopt(&mut self, name: &Name, uid: &Uid) -> Result<Outcome, ApplyError> {
        let claim = self.seen.observation.claims.iter().find(|claim| claim.name == *name);
        let claim = claim.map(|claim| claim.uid.to_string());
        let patch = resources::adopt_patch(&self.build()?, uid.as_str(), claim.as_deref());
        self.patch_pod("Adopt", name, &Patch::Merge(patch)).await
    }

    pub(super) async fn patch_image(
        &mut self,
        name: &Name,
        uid: &Uid,
        version: Version,
    ) -> Result<Outcome, ApplyError> {
        let seen = self.seen.resource_versions.get(uid).map(String::as_str);
        let patch = resources::image_patch(&self.build()?, uid.as_str(), seen, &version.to_string());
        let outcome = self.patch_pod("PatchImage", name, &Patch::Strategic(patch)).await?;
        if outcome == Outcome::Done {
            self.memory.patched.insert(uid.clone(), self.now);
        }
        Ok(outcome)
    }

    /// The patch names a UID, and the API server refuses it for a pod of another.
    pub(super) async fn patch_pod(
        &mut self,
        step: &'static str,
        name: &Name,
        patch: &Patch<Value>,
    ) -> Result<Outcome, ApplyError> {
        match self.api::<Pod>().patch(name.as_str(), &by_us(), patch).await {
            Ok(patched) => {
                self.memory.own.pods.changed(patched);
                Ok(Outcome::Done)
            }
            Err(error) => refused(step, error),
        }
    }

    /// Only the object of this UID, as the plan saw it, in its own time and never by force.
    fn only(&self, uid: &Uid) -> DeleteParams {
        let resource_version = self.seen.resource_versions.get(uid).cloned();
        let preconditions = Preconditions { uid: Some(uid.to_string()), resource_version };
        DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
    }

    pub(super) async fn delete_pod(
        &mut self,
        step: &'static str,
        name: &Name,
        uid: &Uid,
    ) -> Result<Outcome, ApplyError> {
        if !self.claim_is_as_seen(step, name).await? {
            return Ok(Outcome::Stale(format!("the claim of {name} is going, and its data with the pod")));
        }
        match self.api::<Pod>().delete(name.as_str(), &self.only(uid)).await {
            Ok(answer) => {
                // It ends in its own time; until then it shows as being deleted.
                match answer.left().filter(|pod| pod.metadata.deletion_timestamp.is_some()) {
                    Some(pod) => self.memory.own.pods.changed(pod),
                    None => self.memory.own.pods.gone(name.as_str(), uid.as_str()),
                }
                Ok(Outcome::Done)
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {
                self.memory.own.pods.gone(name.as_str(), uid.as_str());
                Ok(Outcome::Done)
            }
            Err(error) => refused(step, error),
        }
    }

    /// Asked just before its pod is deleted: that pod may be all that keeps a claim which somebody deleted since.
    async fn claim_is_as_seen(&self, step: &'static str, name: &Name) -> Result<bool, ApplyError> {
        let mut claims = self.seen.observation.claims.iter();
        let Some(seen) = claims.find(|claim| claim.name == *name && !claim.deleting) else { return Ok(true) };
        let failed = |source| ApplyError::Kubernetes { step, source };
        let now =
            self.api::<PersistentVolumeClaim>().get_metadata_opt(name.as_str()).await.map_err(failed)?;
        Ok(now.is_some_and(|now| {
            now.metadata.deletion_timestamp.is_none()
                && now.metadata.uid.as_deref() == Some(seen.uid.as_str())
        }))
    }

    pub(super) async fn delete_claim(&mut self, name: &Name, uid: &Uid) -> Result<Outcome, ApplyError> {
        match self.api::<Claim>().delete(name.as_str(), &self.only(uid)).await {
            Ok(answer) => {
                match answer.left().filter(|claim| claim.metadata.deletion_timestamp.is_some()) {
                    Some(claim) => self.memory.own.claims.changed(claim),
                    None => self.memory.own.claims.gone(name.as_str(), uid.as_str()),
                }
                Ok(Outcome::Done)
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {
                self.memory.own.claims.gone(name.as_str(), uid.as_str());
                Ok(Outcome::Done)
            }
            Err(error) => refused("DeleteClaim", error),
        }
    }

    /// Refused for a claim of another UID, and for one that changed since the plan saw it.
    pub(super) async fn own_claim(
        &mut self,
        name: &Name,
        uid: &Uid,
        owned: bool,
    ) -> Result<Outcome, ApplyError> {
        let version = self.seen.resource_versions.get(uid).map(String::as_str);
        let patch = Patch::Merge(resources::owner_patch(&self.build()?, uid.as_str(), version, owned));
        match self.api::<PersistentVolumeClaim>().patch_metadata(name.as_str(), &by_us(), &patch).await {
            Ok(patched) => {
                self.memory.own.claims.changed(patched);
                Ok(Outcome::Done)
            }
            Err(error) => refused("OwnClaim", error),
        }
    }

    async fn server_side<K>(&self, step: &'static str, wanted: &K) -> Result<Result<K, Outcome>, ApplyError>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
    {
        let params = PatchParams::apply(MANAGER).force();
        match self.api::<K>().patch(&wanted.name_any(), &params, &Patch::Apply(wanted)).await {
            Ok(written) => Ok(Ok(written)),
            Err(error) => refused(step, error).map(Err),
        }
    }

    fn build(&self) -> Result<Cluster<'_>, ApplyError> {
        Ok(Cluster::of(self.cluster)?)
    }

    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.context.client.clone(), &self.cluster.namespace().unwrap_or_default())
    }
}

/// Some admission webhook has side effects; one that denies may do so with the same code.
fn cannot_be_tried(status: &Status) -> bool {
    status.code == 400 && status.message.contains("does not support dry run")
}

fn by_us() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

/// A random UUID, never used twice.
pub(super) fn uuid() -> String {
    let bytes: [u8; 16] = rand::random();
    let (time, version) = (u128::from_be_bytes(bytes) & !(0xf << 76) & !(0x3 << 62), 4 << 76 | 2 << 62);
    let hex = format!("{:032x}", time | version);
    let part = |range: std::ops::Range<usize>| &hex[range];
    [part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::has_side_effects(400, "admission webhook \"w.example.com\" does not support dry run", true)]
    #[case::denies(400, "admission webhook \"w.example.com\" denied the request: no", false)]
    #[case::refuses(403, "exceeded quota", false)]
    fn what_is_denied_was_tried(#[case] code: u16, #[case] words: &str, #[case] untried: bool) {
        let status = Status { code, message: words.into(), ..Status::default() };
        assert_eq!(cannot_be_tried(&status), untried);
    }
}
