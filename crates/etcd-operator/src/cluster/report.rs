//! What status says of a cluster, and when it is worth a write.

use std::time::Duration;

use api::conditions::{self, Condition, ConditionStatus};
use api::v1beta2::{MembersStatus, rounded_size};
use api::{EtcdCluster, EtcdClusterStatus, labels, names};
use domain::{ConditionKind, Event, Name, Phase, Report, Truth};
use jiff::Timestamp;
use kube::ResourceExt;

/// How much two statuses differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum News {
    None,
    /// Names, numbers and wording.
    Small,
    /// A condition turned, or something that others wait for.
    Big,
}

impl News {
    /// How long after the last write it is worth another, while much is under way.
    pub fn pause(self) -> Option<Duration> {
        match self {
            Self::None => None,
            Self::Small => Some(Duration::from_secs(5)),
            Self::Big => Some(Duration::from_secs(1)),
        }
    }
}

/// The status that `report` asks for; what it does not speak of stays.
pub fn compose(cluster: &EtcdCluster, report: &Report, now: Timestamp) -> EtcdClusterStatus {
    let old = cluster.status.clone().unwrap_or_default();
    let text = |value: Option<String>| value.unwrap_or_default();
    EtcdClusterStatus {
        phase: phase(report.phase),
        reason: report.reason.clone(),
        control_paused: report.control_paused,
        conditions: composed_conditions(cluster, &old.conditions, report, now),
        size: i32::try_from(report.size).unwrap_or(i32::MAX),
        ready_members: i32::try_from(report.ready.len()).unwrap_or(i32::MAX),
        selector: labels::selector(&labels::of_cluster(&cluster.name_any())),
        service_name: names::client_service(&cluster.name_any()),
        client_port: Some(names::CLIENT_PORT.into()),
        members: members(report),
        current_version: text(report.current_version.map(|version| version.to_string())),
        target_version: text(report.target_version.map(|version| version.to_string())),
        leader: text(report.leader.as_ref().map(ToString::to_string)),
        db_size: text(report.db_size.map(rounded_size)),
        observed_generation: cluster.metadata.generation,
        ..old
    }
}

fn members(report: &Report) -> MembersStatus {
    let names = |members: &[Name]| members.iter().map(ToString::to_string).collect();
    let joining = report.unready.iter().filter(|name| !report.voters.contains(name));
    MembersStatus {
        ready: names(&report.ready),
        unready: names(&report.unready),
        joining: joining.map(ToString::to_string).collect(),
    }
}

fn composed_conditions(
    cluster: &EtcdCluster,
    old: &[Condition],
    report: &Report,
    now: Timestamp,
) -> Vec<Condition> {
    let mut conditions = old.to_vec();
    conditions.retain(|old| report.conditions.iter().any(|new| new.kind.as_str() == old.type_));
    for new in &report.conditions {
        let condition =
            Condition::new(new.kind.as_str(), status(new.status), &new.reason, new.message.clone());
        let generation = if is_the_books(new.kind) { None } else { cluster.metadata.generation };
        conditions::set(&mut conditions, condition.observed(generation), now);
    }
    // The book's come first, and none changes its place from one write to the next.
    conditions.sort_by_key(|condition| {
        report.conditions.iter().map(|new| new.kind).find(|kind| kind.as_str() == condition.type_)
    });
    conditions
}

/// Events for the conditions that turn, as far as the report wants them announced.
pub fn announcements(old: &[Condition], report: &Report) -> Vec<Event> {
    let turned = |new: &&domain::Condition| {
        let before = conditions::find(old, new.kind.as_str());
        before.is_none_or(|before| before.status != status(new.status) || before.reason != new.reason)
    };
    let event = |new: &domain::Condition| -> Option<Event> {
        let (severity, reason, message) = (new.announce?, new.reason.clone(), new.message.clone());
        Some(Event { severity, reason, message })
    };
    report.conditions.iter().filter(turned).filter_map(event).collect()
}

pub fn news(old: Option<&EtcdClusterStatus>, new: &EtcdClusterStatus) -> News {
    let Some(old) = old else { return News::Big };
    if old == new {
        return News::None;
    }
    let turns = |status: &EtcdClusterStatus| {
        let conditions = status.conditions.iter();
        conditions.map(|c| (c.type_.clone(), c.status, c.reason.clone())).collect::<Vec<_>>()
    };
    let weighty = |status: &EtcdClusterStatus| {
        let versions = (status.current_version.clone(), status.target_version.clone());
        (status.phase, status.reason.clone(), status.control_paused, versions, status.observed_generation)
    };
    if turns(old) != turns(new) || weighty(old) != weighty(new) { News::Big } else { News::Small }
}

fn phase(phase: Phase) -> Option<api::v1beta2::Phase> {
    match phase {
        Phase::None => None,
        Phase::Creating => Some(api::v1beta2::Phase::Creating),
        Phase::Running => Some(api::v1beta2::Phase::Running),
        Phase::Failed => Some(api::v1beta2::Phase::Failed),
    }
}

fn status(truth: Truth) -> ConditionStatus {
    match truth {
        Truth::True => ConditionStatus::True,
        Truth::False => ConditionStatus::False,
        Truth::Unknown => ConditionStatus::Unknown,
    }
}

fn is_the_books(kind: ConditionKind) -> bool {
    use ConditionKind::{Available, Recovering, Scaling, Upgrading};
    matches!(kind, Available | Scaling | Upgrading | Recovering)
}

/// A report that says nothing, for tests to fill in.
#[cfg(test)]
pub(crate) fn silent() -> Report {
    Report {
        phase: Phase::Running,
        reason: String::new(),
        control_paused: false,
        size: 0,
        ready: Vec::new(),
        unready: Vec::new(),
        voters: Vec::new(),
        leader: None,
        db_size: None,
        current_version: None,
        target_version: None,
        conditions: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::Severity;
    use domain::Version;

    fn condition(kind: ConditionKind, status: Truth, reason: &str) -> domain::Condition {
        domain::Condition {
            kind,
            status,
            reason: reason.into(),
            message: String::new(),
            announce: Some(Severity::Normal),
        }
    }

    fn report(conditions: Vec<domain::Condition>) -> Report {
        Report {
            size: 3,
            ready: vec!["c-1".into(), "c-2".into()],
            unready: vec!["c-3".into()],
            voters: vec!["c-1".into(), "c-2".into()],
            leader: Some("c-1".into()),
            db_size: Some(20_000),
            current_version: Some(Version::new(3, 1, 10)),
            conditions,
            ..silent()
        }
    }

    fn cluster() -> EtcdCluster {
        let mut cluster = EtcdCluster::new("c", api::EtcdClusterSpec::default());
        cluster.metadata.generation = Some(4);
        let status = EtcdClusterStatus { cluster_id: "cafe".into(), ..EtcdClusterStatus::default() };
        cluster.status = Some(status);
        cluster
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn status_says_what_the_report_says_and_keeps_what_was_recorded() {
        let conditions = vec![
            condition(ConditionKind::Available, Truth::True, "Cluster available"),
            condition(ConditionKind::Ready, Truth::False, "Upgrading"),
        ];
        let status = compose(&cluster(), &report(conditions), at(7));
        assert_eq!(status.cluster_id, "cafe");
        assert_eq!((status.size, status.ready_members), (3, 2));
        assert_eq!(
            (status.members.unready, status.members.joining),
            (vec!["c-3".into()], vec!["c-3".into()])
        );
        assert_eq!((status.current_version.as_str(), status.target_version.as_str()), ("3.1.10", ""));
        assert_eq!(status.service_name, "c-client");
        assert_eq!(status.conditions[0].observed_generation, None, "the book's conditions stay the book's");
        assert_eq!(status.conditions[1].observed_generation, Some(4));
    }

    #[test]
    fn nothing_new_is_no_news_and_a_turn_is_big() {
        let mut cluster = cluster();
        let available = condition(ConditionKind::Available, Truth::True, "Cluster available");
        let mut said = report(vec![available.clone()]);
        cluster.status = Some(compose(&cluster, &said, at(7)));
        assert_eq!(news(cluster.status.as_ref(), &compose(&cluster, &said, at(9))), News::None);
        said.unready.clear();
        assert_eq!(news(cluster.status.as_ref(), &compose(&cluster, &said, at(9))), News::Small);
        said.conditions =
            vec![available, condition(ConditionKind::Upgrading, Truth::True, "Cluster upgrading")];
        assert_eq!(news(cluster.status.as_ref(), &compose(&cluster, &said, at(9))), News::Big);
        said.conditions.clear();
        let gone = compose(&cluster, &said, at(9));
        assert!(gone.conditions.is_empty());
        assert_eq!(news(cluster.status.as_ref(), &gone), News::Big);
    }

    #[test]
    fn a_condition_is_announced_when_it_turns_and_only_then() {
        let lost = condition(ConditionKind::QuorumLost, Truth::True, "MajorityDown");
        let said = report(vec![lost]);
        assert_eq!(announcements(&[], &said).len(), 1);
        let status = compose(&cluster(), &said, at(7));
        assert!(announcements(&status.conditions, &said).is_empty());
    }
}
