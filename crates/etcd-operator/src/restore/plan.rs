//! Whether a restore may begin: decided on what was seen, by nobody else. Pure.

use domain::{HopTable, Version};

/// What the cluster is, as far as it concerns a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// There is no EtcdCluster of that name; this spec would make one, if any is known.
    Absent { spec: Option<Known> },
    /// It exists, and no member of it was ever recorded.
    Empty { version: String },
    /// A majority of its members is down.
    Lost { version: String },
    /// It answers.
    Healthy { version: String },
    /// Nobody knows.
    Unknown { version: String },
}

/// Where the spec of a cluster that is not there comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub version: String,
}

/// All that counts. The backup was read and verified to its last page before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub force: bool,
    pub revision: i64,
    pub etcd_version: Option<Version>,
    pub target: Target,
    /// The restore that another EtcdRestore began and that has not ended.
    pub under_way: Option<String>,
    pub survivors: Vec<Survivor>,
    /// Members that do not answer, and whose data may still be somewhere.
    pub unsure: Vec<String>,
    /// Pods and claims that may hold data, of a cluster whose ID nobody has recorded.
    pub unrecorded: Vec<String>,
}

/// A member that gave its snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivor {
    pub name: String,
    pub revision: i64,
}

/// Why it may not. Nothing was touched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{0} is being restored already: wait until that has ended")]
    UnderWay(String),
    #[error(
        "there is no EtcdCluster of that name, and no spec to make it from: create it, or write spec.clusterTemplate"
    )]
    NoSpec,
    #[error("{0}")]
    Version(String),
    #[error(
        "the cluster is healthy, and a restore would take all that was written since revision {revision}: write force: true if that is meant"
    )]
    Healthy { revision: i64 },
    #[error("it cannot be told whether the cluster lives: look at its members first, or write force: true")]
    Unknown,
    #[error(
        "{} newer than the backup, which ends at revision {revision}: what they have was saved beside it; restore that, or write force: true to go on without", newer(.survivors)
    )]
    Newer { revision: i64, survivors: Vec<Survivor> },
    #[error(
        "{} cannot be reached and may still have newer data: bring them back or delete their pods and claims, or write force: true to go on without", .0.join(", ")
    )]
    Unsure(Vec<String>),
    #[error(
        "pods or claims of the cluster may hold data, and no cluster ID is recorded that tells of it: {}; let \
         etcd-operator take the cluster up first, or delete them, or write force: true to have them deleted once the \
         restored cluster is full", .0.join(", ")
    )]
    Unrecorded(Vec<String>),
}

impl Refusal {
    /// Stable, for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::UnderWay(_) => "RestoreUnderWay",
            Self::NoSpec => "NoClusterSpec",
            Self::Version(_) => "VersionRefused",
            Self::Healthy { .. } => "ClusterHealthy",
            Self::Unknown => "ClusterUnknown",
            Self::Newer { .. } => "SurvivorNewer",
            Self::Unsure(_) => "MemberUnreachable",
            Self::Unrecorded(_) => "ClusterNotRecorded",
        }
    }
}

/// Those that gave their snapshots in rounds before: what they had counts, though they may be gone by now.
pub fn remembered(survivors: &[api::v1beta2::Survivor]) -> Vec<Survivor> {
    let saved = survivors.iter().filter(|survivor| !survivor.saved_to.is_empty());
    saved.map(|saved| Survivor { name: saved.member.clone(), revision: saved.revision }).collect()
}

fn newer(survivors: &[Survivor]) -> String {
    let named: Vec<_> = survivors.iter().map(|s| format!("{} (revision {})", s.name, s.revision)).collect();
    format!("{} {}", named.join(", "), if named.len() == 1 { "is" } else { "are" })
}

/// `Ok`: the request may be written.
pub fn decide(facts: &Facts, hops: &HopTable) -> Result<(), Refusal> {
    if let Some(other) = &facts.under_way {
        return Err(Refusal::UnderWay(other.clone()));
    }
    let version = match &facts.target {
        Target::Absent { spec: Some(known) } => &known.version,
        Target::Absent { spec: None } => return Err(Refusal::NoSpec),
        Target::Empty { version }
        | Target::Lost { version }
        | Target::Healthy { version }
        | Target::Unknown { version } => version,
    };
    let wanted = version.parse::<Version>().and_then(|to| hops.restore_on(facts.etcd_version, to));
    wanted.map_err(|refusal| Refusal::Version(refusal.to_string()))?;
    if facts.force {
        return Ok(());
    }
    match &facts.target {
        Target::Healthy { .. } => return Err(Refusal::Healthy { revision: facts.revision }),
        Target::Unknown { .. } => return Err(Refusal::Unknown),
        Target::Absent { .. } | Target::Empty { .. } | Target::Lost { .. } => {}
    }
    if !facts.unrecorded.is_empty() {
        return Err(Refusal::Unrecorded(facts.unrecorded.clone()));
    }
    let newer: Vec<_> = facts.survivors.iter().filter(|s| s.revision > facts.revision).cloned().collect();
    if !newer.is_empty() {
        return Err(Refusal::Newer { revision: facts.revision, survivors: newer });
    }
    if !facts.unsure.is_empty() {
        return Err(Refusal::Unsure(facts.unsure.clone()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn lost() -> Facts {
        Facts {
            force: false,
            revision: 100,
            etcd_version: Some(Version::new(3, 5, 16)),
            target: Target::Lost { version: "3.5.16".into() },
            under_way: None,
            survivors: Vec::new(),
            unsure: Vec::new(),
            unrecorded: Vec::new(),
        }
    }

    fn of(target: fn(String) -> Target) -> impl Fn(&mut Facts) {
        move |facts| facts.target = target("3.5.16".into())
    }

    fn survivor(revision: i64) -> impl Fn(&mut Facts) {
        move |facts| facts.survivors.push(Survivor { name: "c-1".into(), revision })
    }

    #[rstest]
    #[case::lost(|_: &mut Facts| {}, None, None)]
    #[case::healthy(of(|version| Target::Healthy { version }), Some("is healthy"), None)]
    #[case::unknown(of(|version| Target::Unknown { version }), Some("cannot be told"), None)]
    #[case::empty(of(|version| Target::Empty { version }), None, None)]
    #[case::absent(of(|version| Target::Absent { spec: Some(Known { version }) }), None, None)]
    #[case::absent_without_spec(of(|_| Target::Absent { spec: None }), Some("no spec to make it"), Some("no spec to make it"))]
    #[case::survivor_behind(survivor(99), None, None)]
    #[case::survivor_equal(survivor(100), None, None)]
    #[case::survivor_ahead(survivor(101), Some("c-1 (revision 101) is newer"), None)]
    #[case::unreachable(|f: &mut Facts| f.unsure.push("c-2".into()), Some("c-2 cannot be reached"), None)]
    #[case::unrecorded(|f: &mut Facts| {
        f.target = Target::Empty { version: "3.5.16".into() };
        f.unrecorded.push("c-2".into());
    }, Some("tells of it: c-2"), None)]
    #[case::newer_backup(|f: &mut Facts| f.etcd_version = Some(Version::new(3, 6, 4)), Some("backup of etcd 3.6.4"), Some("backup of etcd 3.6.4"))]
    #[case::older_backup(|f: &mut Facts| f.etcd_version = Some(Version::new(3, 4, 15)), None, None)]
    #[case::backup_of_unknown_version(|f: &mut Facts| f.etcd_version = None, None, None)]
    #[case::bad_version(|f: &mut Facts| f.target = Target::Lost { version: "three".into() }, Some("no etcd version"), Some("no etcd version"))]
    #[case::another(|f: &mut Facts| f.under_way = Some("u2".into()), Some("u2 is being restored"), Some("u2 is being restored"))]
    fn may_it(#[case] change: impl Fn(&mut Facts), #[case] says: Option<&str>, #[case] forced: Option<&str>) {
        for (force, says) in [(false, says), (true, forced)] {
            let mut facts = lost();
            facts.force = force;
            change(&mut facts);
            let refused = decide(&facts, &HopTable::default()).err().map(|refusal| refusal.to_string());
            match (refused, says) {
                (None, None) => {}
                (Some(refusal), Some(words)) => assert!(refusal.contains(words), "{refusal}"),
                (refused, says) => panic!("force {force}: {refused:?}, expected {says:?}"),
            }
        }
    }

    #[test]
    fn a_survivor_that_died_since_is_not_forgotten() {
        let told = |member: &str, revision, saved_to: &str| api::v1beta2::Survivor {
            member: member.into(),
            revision,
            saved_to: saved_to.into(),
            ..api::v1beta2::Survivor::default()
        };
        let survivors = remembered(&[told("c-1", 101, "bucket/b.survivor-c-1"), told("c-2", 0, "")]);
        assert_eq!(survivors, [Survivor { name: "c-1".into(), revision: 101 }]);
        let facts = Facts { survivors, ..lost() };
        assert!(matches!(decide(&facts, &HopTable::default()), Err(Refusal::Newer { .. })));
    }
}
