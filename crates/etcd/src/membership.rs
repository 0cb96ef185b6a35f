//! Who belongs to the cluster, and changes of it.
//!
//! Every change asks the member who it is before, in the same connection: an answer's header would tell too
//! late that the change was made in somebody else's cluster.

use crate::member::Ask;
use crate::proto::etcdserverpb::{
    self as pb, cluster_client::ClusterClient, maintenance_client::MaintenanceClient,
};
use crate::{Error, Member, Result};
use domain::MemberId;

/// One line of the member list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub id: MemberId,
    /// Empty until the member started and published itself.
    pub name: String,
    pub peer_urls: Vec<String>,
    pub client_urls: Vec<String>,
    pub learner: bool,
}

impl From<pb::Member> for Listed {
    fn from(member: pb::Member) -> Self {
        Self {
            id: MemberId(member.id),
            name: member.name,
            peer_urls: member.peer_ur_ls,
            client_urls: member.client_ur_ls,
            learner: member.is_learner,
        }
    }
}

impl Member {
    /// The member list as the whole cluster knows it now.
    ///
    /// Only 3.5 and later can list linearizably; older members ignore the wish. A linearizable read before
    /// brings the member up to date in every version, and unlike a look at its version it cannot be overtaken
    /// by a change of the image in between.
    pub async fn members(&self) -> Result<Vec<Listed>> {
        self.health().await?;
        self.list(Ask::Cluster(pb::MemberListRequest { linearizable: true })).await
    }

    /// The member list as this member knows it, stale perhaps: for reports, never for a change.
    pub async fn hearsay(&self) -> Result<Vec<Listed>> {
        self.list(Ask::Local(pb::MemberListRequest { linearizable: false })).await
    }

    async fn list(&self, ask: Ask<pb::MemberListRequest>) -> Result<Vec<Listed>> {
        let mut client = ClusterClient::new(self.channel.clone());
        let answer = self.call(ask, |request| client.member_list(request)).await?;
        Ok(answer.members.into_iter().map(Listed::from).collect())
    }

    /// Adds a member that has not started yet. Refused by etcd until every voter has been connected for 5 s
    /// ([`Error::UnhealthyCluster`]).
    ///
    /// A learner only where *every* member runs 3.4 or later: older ones panic when they hear of it, and this
    /// member cannot know. Its own version is checked, since an older one would add a voter without a word.
    pub async fn add_member(&self, peer_urls: Vec<String>, learner: bool) -> Result<Listed> {
        let status = self.status().await?;
        if learner && !status.version.has_learners() {
            return Err(Error::Unsupported);
        }
        let mut client = ClusterClient::new(self.channel.clone());
        let ask = Ask::Cluster(pb::MemberAddRequest { peer_ur_ls: peer_urls, is_learner: learner });
        let answer = self.call(ask, |request| client.member_add(request)).await?;
        let added = Listed::from(answer.member.ok_or(Error::BadAnswer("it names no new member"))?);
        if added.learner == learner {
            Ok(added)
        } else {
            Err(Error::BadAnswer("a voter was added where a learner was asked for"))
        }
    }

    /// Removes a member for good: its ID never comes back.
    pub async fn remove_member(&self, id: MemberId) -> Result<()> {
        self.status().await?;
        let mut client = ClusterClient::new(self.channel.clone());
        let ask = Ask::Cluster(pb::MemberRemoveRequest { id: id.0 });
        self.call(ask, |request| client.member_remove(request)).await?;
        Ok(())
    }

    /// Makes a learner a voter. Ask the learner for its Status first: before 3.4.24 and 3.5.7 etcd promotes
    /// one that never started.
    pub async fn promote(&self, id: MemberId) -> Result<()> {
        self.status().await?;
        let mut client = ClusterClient::new(self.channel.clone());
        let ask = Ask::Cluster(pb::MemberPromoteRequest { id: id.0 });
        self.call(ask, |request| client.member_promote(request)).await?;
        Ok(())
    }

    /// Hands leadership to another voter. This member must be the leader.
    pub async fn move_leader(&self, target: MemberId) -> Result<()> {
        self.status().await?;
        let mut client = MaintenanceClient::new(self.channel.clone());
        let ask = Ask::Cluster(pb::MoveLeaderRequest { target_id: target.0 });
        self.call_unsigned(ask, |request| client.move_leader(request)).await?;
        Ok(())
    }
}
