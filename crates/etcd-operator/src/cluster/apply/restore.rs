//! Steps of a restore.

use api::v1beta2::{MembersStatus, RestoreProgress, RestoreRequest, RestoreStage};
use domain::{ClusterId, Name, Restore, Stage, Uid, Version};
use etcd::Expect;
use kube::api::Patch;
use resources::Bootstrap;

use super::super::members::named;
use super::membership::CHANGE;
use super::objects::uuid;
use super::{ApplyError, Hands, Outcome};

impl Hands<'_> {
    /// What status says of this restore; what was found in its data stays.
    pub(super) fn progress(&self, restore: &Restore) -> RestoreProgress {
        let names = |names: &[Name]| names.iter().map(ToString::to_string).collect();
        let before = self.status.restore.as_ref().filter(|before| before.uid == restore.request.as_str());
        let found = before.map(|before| before.restored.clone()).unwrap_or_default();
        let (stage, message) = match &restore.stage {
            Stage::Seeding => (RestoreStage::Seeding, String::new()),
            Stage::Filling => (RestoreStage::Filling, String::new()),
            Stage::Done => (RestoreStage::Done, String::new()),
            Stage::Failed(why) => (RestoreStage::Failed, why.clone()),
        };
        RestoreProgress {
            uid: restore.request.to_string(),
            seed: restore.seed.to_string(),
            restored: if self.seen.restored.is_empty() { found } else { self.seen.restored.clone() },
            again: restore.again.into(),
            replaced: names(&restore.replaced),
            stage,
            message,
        }
    }

    /// One write: who reads status sees the cluster of before or the restored one, never a mixture.
    pub(super) async fn swap_cluster(
        &mut self,
        id: ClusterId,
        version: Version,
        restore: &Restore,
    ) -> Result<Outcome, ApplyError> {
        if !self.leads_alone(&restore.seed, id).await {
            return Ok(Outcome::Stale(format!("{} does not answer any more", restore.seed)));
        }
        let progress = self.progress(restore);
        self.status.cluster_id = id.to_string();
        self.status.seed = restore.seed.to_string();
        self.status.members =
            MembersStatus { unready: vec![restore.seed.to_string()], ..MembersStatus::default() };
        self.status.current_version = version.to_string();
        self.status.restore = Some(progress);
        self.record("SwapCluster").await
    }

    /// Asked just before its cluster becomes the cluster: what answered when the plan was made may be lost since.
    async fn leads_alone(&self, seed: &Name, id: ClusterId) -> bool {
        let Some(link) = &self.seen.seed else { return false };
        let link = link.expecting(Expect { cluster: Some(id), member: None }).with_deadline(CHANGE);
        let members = link.members().await.map(|list| named(list, &self.seen.zone));
        members.is_ok_and(|members| matches!(members.as_slice(), [member] if member.name == *seed))
    }

    pub(super) async fn create_restored_seed(
        &mut self,
        name: &Name,
        version: Version,
        request: &Uid,
    ) -> Result<Outcome, ApplyError> {
        const STEP: &str = "CreateRestoredSeed";
        let asked = RestoreRequest::on(self.cluster).ok().flatten();
        let Some(request) = asked.filter(|asked| asked.uid == request.as_str()) else {
            return Ok(Outcome::Stale("the request for this restore is gone".into()));
        };
        let bootstrap = Bootstrap::Restore { request: &request, token: &uuid() };
        self.create_with_claim(STEP, name, version, bootstrap).await
    }

    pub(super) async fn stop_serving(&mut self, name: &Name, uid: &Uid) -> Result<Outcome, ApplyError> {
        let patch = Patch::Merge(resources::stop_serving_patch(uid.as_str()));
        self.patch_pod("StopServing", name, &patch).await
    }
}
