//! What the members themselves say: all asked at once, each by its pod's IP, none waited for longer than a moment.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use api::names::{CLIENT_PORT, Zone};
use domain::{Alarm, ClusterId, Member, MemberId, Name, Read, Seed, Status, Uid};
use etcd::{Expect, Listed};
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use tokio::time::Instant;

/// Far more than a healthy member needs, so that a hanging one delays its own cluster alone, and not for long.
const DEADLINE: Duration = Duration::from_secs(1);
/// How long alarms that must be asked for are believed.
const ALARMS_KEEP: Duration = Duration::from_secs(30);
/// etcd's default, for versions that do not tell.
const DEFAULT_QUOTA: u64 = 2 * 1024 * 1024 * 1024;

/// Connections to the pods of one cluster. Another pod of the same name, or another IP, is another connection.
#[derive(Default)]
pub struct Links(BTreeMap<(Uid, IpAddr), etcd::Member>);

/// A pod that may answer.
#[derive(Clone, Debug)]
pub struct Target {
    pub name: Name,
    pub uid: Uid,
    pub ip: IpAddr,
}

impl Links {
    /// Connects to these pods and forgets all others.
    pub fn to(&mut self, targets: &[Target], cluster: Option<ClusterId>) -> BTreeMap<Name, etcd::Member> {
        let expect = Expect { cluster, member: None };
        self.0.retain(|(uid, ip), _| targets.iter().any(|target| target.uid == *uid && target.ip == *ip));
        let mut links = BTreeMap::new();
        for Target { name, uid, ip } in targets {
            let known = self.0.get(&(uid.clone(), *ip)).cloned();
            let link = known
                .or_else(|| etcd::Member::connect(std::net::SocketAddr::new(*ip, CLIENT_PORT), expect).ok());
            if let Some(link) = link {
                self.0.insert((uid.clone(), *ip), link.clone());
                links.insert(name.clone(), link.expecting(expect).with_deadline(DEADLINE));
            }
        }
        links
    }
}

pub struct Answers {
    pub members: Read<Vec<Member>>,
    pub hearsay: Vec<Member>,
    pub statuses: BTreeMap<Name, Read<Status>>,
    pub alarms: Read<Vec<Alarm>>,
}

/// Asks every pod for its Status, and whoever answers first for the member list. Pods that no member names are not
/// waited for: they have not joined yet, or are on their way out.
pub async fn ask(
    links: &BTreeMap<Name, etcd::Member>,
    zone: &Zone,
    quota: Option<u64>,
    alarms: &mut Alarms,
) -> Answers {
    let mut asked: FuturesUnordered<_> =
        links.iter().map(async |(name, link)| (name.clone(), link.status().await)).collect();
    let mut list = std::pin::pin!(agreed(links));
    let (mut statuses, mut listed) = (Vec::new(), None);
    while listed.as_ref().is_none_or(|listed| awaited(links, listed, &statuses, zone)) {
        tokio::select! {
            Some(status) = asked.next() => statuses.push(status),
            agreed = &mut list, if listed.is_none() => listed = Some(agreed),
            else => break,
        }
    }
    let agreed = listed.unwrap_or_else(|| Err("nobody was asked".to_owned()));
    let (members, hearsay, alarms) = match agreed {
        Ok((list, link)) => {
            let answered: Vec<_> = statuses.iter().filter_map(|(_, answer)| answer.as_ref().ok()).collect();
            (Read::Known(named(list, zone)), Vec::new(), alarms.ask(link, &answered).await)
        }
        Err(why) => (Read::Unknown(why.clone()), hearsay(links, &statuses, zone).await, Read::Unknown(why)),
    };
    let ids = ids(members.known().unwrap_or(&hearsay));
    let statuses = statuses.into_iter().map(|(name, answer)| {
        let status = checked(answer, ids.get(&name).copied()).map(|status| converted(status, quota));
        (name, status.map_or_else(Read::Unknown, Read::Known))
    });
    Answers { statuses: statuses.collect(), members, hearsay, alarms }
}

/// What a member says of itself and of its cluster, whichever that is.
pub async fn ask_seed(link: &etcd::Member, zone: &Zone, quota: Option<u64>) -> Option<Seed> {
    let link = link.expecting(Expect::default()).with_deadline(DEADLINE);
    let (status, list) = tokio::join!(link.status(), link.members());
    Some(Seed { status: converted(status.ok()?, quota), members: named(list.ok()?, zone) })
}

type Agreed<'a> = Result<(Vec<Listed>, &'a etcd::Member), String>;

/// Somebody whose word counts has not answered yet.
fn awaited(
    links: &BTreeMap<Name, etcd::Member>,
    listed: &Agreed<'_>,
    statuses: &[(Name, etcd::Result<etcd::Status>)],
    zone: &Zone,
) -> bool {
    let members = listed.as_ref().ok().map(|(list, _)| named(list.clone(), zone));
    let counts = |name: &Name| {
        members.as_ref().is_none_or(|members| members.iter().any(|member| member.name == *name))
    };
    links.keys().any(|name| counts(name) && statuses.iter().all(|(answered, _)| answered != name))
}

/// The member list as a quorum knows it, and the first member that can prove it.
async fn agreed(links: &BTreeMap<Name, etcd::Member>) -> Agreed<'_> {
    let mut lists: FuturesUnordered<_> =
        links.values().map(async |link| link.members().await.map(|list| (list, link))).collect();
    let mut why = "no pod has an address".to_owned();
    while let Some(list) = lists.next().await {
        match list {
            Ok(agreed) => return Ok(agreed),
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

/// The alarms of versions that do not show them in their Status, as last asked for. The question is agreed on and
/// logged by all members, so it is not put in every round.
#[derive(Default)]
pub struct Alarms(Option<(Instant, Vec<Alarm>)>);

impl Alarms {
    async fn ask(&mut self, link: &etcd::Member, answered: &[&etcd::Status]) -> Read<Vec<Alarm>> {
        let shown: Vec<_> = answered.iter().map(|status| status.alarmed()).collect();
        if !shown.contains(&Some(true)) {
            if !shown.contains(&None) {
                return Read::Known(Vec::new());
            }
            if let Some((_, alarms)) = self.0.as_ref().filter(|(at, _)| at.elapsed() < ALARMS_KEEP) {
                return Read::Known(alarms.clone());
            }
        }
        match link.alarms().await {
            Ok(alarms) => {
                self.0 = Some((Instant::now(), alarms.clone()));
                Read::Known(alarms)
            }
            Err(error) => Read::Unknown(error.to_string()),
        }
    }
}

/// The member list of whoever is furthest, without proof. Who gave no Status just now is not waited for again.
async fn hearsay(
    links: &BTreeMap<Name, etcd::Member>,
    statuses: &[(Name, etcd::Result<etcd::Status>)],
    zone: &Zone,
) -> Vec<Member> {
    let answered =
        statuses.iter().filter_map(|(name, answer)| Some((links.get(name)?, answer.as_ref().ok()?)));
    let lists = answered.map(async |(link, status)| {
        Some(((status.raft_term, status.raft_index), link.hearsay().await.ok()?))
    });
    let newest = join_all(lists).await.into_iter().flatten().max_by_key(|(progress, _)| *progress);
    newest.map(|(_, list)| named(list, zone)).unwrap_or_default()
}

fn ids(members: &[Member]) -> BTreeMap<Name, MemberId> {
    members.iter().map(|member| (member.name.clone(), member.id)).collect()
}

/// A pod's answer counts only as that of the member of its name.
fn checked(answer: etcd::Result<etcd::Status>, expected: Option<MemberId>) -> Result<etcd::Status, String> {
    let status = answer.map_err(|error| error.to_string())?;
    match expected {
        Some(id) if id != status.identity.member => {
            Err(format!("it answers as {} and should be member {id}", status.identity))
        }
        _ => Ok(status),
    }
}

/// Names come from peer URLs: etcd has none for a member that never started.
pub fn named(list: Vec<Listed>, zone: &Zone) -> Vec<Member> {
    let member = |listed: Listed| {
        let name = listed.peer_urls.iter().find_map(|url| zone.member_of_peer_url(url));
        Member {
            id: listed.id,
            name: name.unwrap_or(&listed.name).into(),
            started: !listed.name.is_empty(),
            learner: listed.learner,
            peer_urls: listed.peer_urls,
        }
    };
    list.into_iter().map(member).collect()
}

fn converted(status: etcd::Status, quota: Option<u64>) -> Status {
    Status {
        cluster: status.identity.cluster,
        member: status.identity.member,
        version: status.version,
        leader: status.leader,
        term: status.raft_term,
        raft_index: status.raft_index,
        applied_index: status.applied_index.unwrap_or(status.raft_index),
        db_size: status.db_size,
        quota: status.quota.or(quota).unwrap_or(DEFAULT_QUOTA),
        learner: status.learner,
    }
}
