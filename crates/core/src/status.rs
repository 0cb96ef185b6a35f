//! The report: what an observation and a decision mean for status, conditions and events.

use crate::ids::Name;
use crate::observation::{AlarmKind, Check, Member, Read, Stage};
use crate::plan::Rule;
use crate::report::{Condition, ConditionKind, Phase, Report, Severity, Truth};
use crate::rules::{Decision, hands_off, precaution, quorum, upgrade};
use crate::version::Version;
use crate::view::{Quorum, View};

/// A database above this share of its quota is worth a warning.
const QUOTA_PERCENT: u64 = 80;

pub fn report(view: &View, rule: Rule, decision: &Decision) -> Report {
    let refusal = refusal(view);
    let target_version =
        view.target().ok().filter(|_| refusal.is_none()).filter(|target| upgrading(view, *target));
    let (ready, unready) = members(view);
    let begun = view.seen.recorded.cluster.is_some();
    let phase = match (begun, &refusal) {
        (true, _) => Phase::Running,
        (false, Some(_)) => Phase::Failed,
        (false, None) if rule == Rule::HandsOff => Phase::None,
        (false, None) => Phase::Creating,
    };
    let leader = view.leader();
    let listed = view.told_members();
    let statuses = || view.seen.statuses.values().filter_map(Read::known);
    let conditions = conditions(view, rule, decision, refusal.as_deref(), target_version);
    Report {
        phase,
        reason: reason(&conditions),
        control_paused: view.spec.paused,
        size: u32::try_from(listed.len()).unwrap_or(u32::MAX),
        ready,
        unready,
        voters: view.told_voters().into_iter().cloned().collect(),
        leader: listed.iter().find(|member| Some(member.id) == leader).map(|member| member.name.clone()),
        db_size: statuses().map(|status| status.db_size).max(),
        current_version: view.current_version(),
        target_version,
        conditions,
    }
}

/// Why the spec as it stands is not, or not wholly, acted on.
fn refusal(view: &View) -> Option<String> {
    hands_off::refusal(view).or_else(|| view.next_version().err().map(|refusal| refusal.to_string()))
}

fn upgrading(view: &View, target: Version) -> bool {
    view.seen.recorded.cluster.is_some()
        && (upgrade::pending(view, target) || view.lowest_running().is_some_and(|lowest| lowest != target))
}

/// Ready: answers, follows a leader, and has a vote.
fn members(view: &View) -> (Vec<Name>, Vec<Name>) {
    let listed = view.told_members();
    let follows = |member: &Member| view.answer(member).is_some_and(|status| status.leader.is_some());
    let (ready, unready): (Vec<&Member>, Vec<&Member>) =
        listed.iter().partition(|member| !member.learner && follows(member));
    let mut unready: Vec<_> = unready.into_iter().map(|member| member.name.clone()).collect();
    if listed.is_empty() {
        unready.extend(view.known_voters().into_iter().cloned());
    }
    let mut ready: Vec<_> = ready.into_iter().map(|member| member.name.clone()).collect();
    ready.sort_unstable();
    unready.sort_unstable();
    (ready, unready)
}

/// `status.reason`: what keeps the cluster from being well, the gravest first.
fn reason(conditions: &[Condition]) -> String {
    let grave = [ConditionKind::SpecInvalid, ConditionKind::QuorumLost, ConditionKind::Degraded];
    let message = |kind| {
        let holds = |condition: &&Condition| condition.kind == kind && condition.status == Truth::True;
        conditions.iter().find(holds).map(|condition| condition.message.clone())
    };
    grave.into_iter().find_map(message).unwrap_or_default()
}

fn holds(kind: ConditionKind, reason: &str, message: impl Into<String>) -> Condition {
    Condition {
        kind,
        status: Truth::True,
        reason: reason.to_owned(),
        message: message.into(),
        announce: None,
    }
}

fn warns(kind: ConditionKind, reason: &str, message: impl Into<String>) -> Condition {
    Condition { announce: Some(Severity::Warning), ..holds(kind, reason, message) }
}

fn conditions(
    view: &View,
    rule: Rule,
    decision: &Decision,
    refusal: Option<&str>,
    target: Option<Version>,
) -> Vec<Condition> {
    let mut conditions = Vec::new();
    let begun = view.seen.recorded.cluster.is_some();
    let quorum = if begun { view.quorum() } else { Quorum::Holds };
    if let Some(message) = refusal {
        conditions.push(warns(ConditionKind::SpecInvalid, "SpecInvalid", message));
    }
    conditions.extend(restoring(view));
    if view.spec.paused {
        conditions.push(holds(ConditionKind::Paused, "ControlPaused", "control is paused by spec.paused"));
    }
    if begun {
        conditions.push(available(view, &quorum));
        conditions.extend(quorum_lost(view, &quorum));
        conditions.extend(scaling(view));
        conditions.extend(recovering(view, &quorum));
        conditions.extend(target.map(|target| upgrading_to(view, target)));
        conditions.extend(degraded(rule, decision));
        conditions.extend(alarm(view));
    } else if rule == Rule::Rival || (rule == Rule::Bootstrap && refusal.is_none()) {
        conditions.extend(degraded(rule, decision));
    }
    conditions.extend(kstatus(view, rule, decision, refusal.is_some(), &conditions));
    conditions
}

/// A second voter that is just starting is part of growing, and turns nothing: as with the book's operator.
fn available(view: &View, quorum: &Quorum) -> Condition {
    let available = holds(ConditionKind::Available, "Cluster available", "");
    match quorum {
        Quorum::Holds => available,
        Quorum::AwaitsSecond if view.second_just_starts() => available,
        Quorum::AwaitsSecond | Quorum::Unknown(_) => {
            Condition { status: Truth::Unknown, reason: "Cluster unknown".to_owned(), ..available }
        }
        Quorum::Lost => {
            Condition { status: Truth::False, reason: "Cluster unavailable".to_owned(), ..available }
        }
    }
}

fn quorum_lost(view: &View, quorum: &Quorum) -> Option<Condition> {
    match quorum {
        Quorum::Holds | Quorum::AwaitsSecond => None,
        Quorum::Lost => Some(warns(ConditionKind::QuorumLost, "QuorumLost", quorum::story(view))),
        Quorum::Unknown(_) => Some(Condition {
            status: Truth::Unknown,
            ..holds(ConditionKind::QuorumLost, "NobodyAnswers", "no member answers for the cluster")
        }),
    }
}

/// How far a restore is, or how it ended.
fn restoring(view: &View) -> Option<Condition> {
    let begun = view.seen.recorded.restore.as_ref()?;
    let (seed, kind) = (&begun.seed, ConditionKind::Restoring);
    let ended = |reason, message| Condition {
        status: Truth::False,
        announce: Some(Severity::Normal),
        ..holds(kind, reason, message)
    };
    Some(match &begun.stage {
        Stage::Seeding => holds(
            kind,
            "MakingSeed",
            format!("{seed} is made from the backup; what is there is left alone meanwhile"),
        ),
        Stage::Filling => {
            let (there, size) = (view.voter_count(), view.size());
            let message = format!(
                "the backup is back, with {there} of {size} members; what was there before is kept until it is full"
            );
            Condition { announce: Some(Severity::Normal), ..holds(kind, "FillingUp", message) }
        }
        Stage::Done => {
            ended("Restored", format!("the cluster that began with {seed} was restored from a backup"))
        }
        Stage::Failed(why) => {
            Condition { announce: Some(Severity::Warning), ..ended("RestoreFailed", why.clone()) }
        }
    })
}

/// In the book's words.
fn scaling(view: &View) -> Option<Condition> {
    let (members, size) = (view.voter_count(), view.size());
    let reason = match members.cmp(&size) {
        std::cmp::Ordering::Less => "Scaling up",
        std::cmp::Ordering::Greater => "Scaling down",
        std::cmp::Ordering::Equal => return None,
    };
    let message = format!("Current cluster size: {members}, desired cluster size: {size}");
    view.seen.members.known().map(|_| holds(ConditionKind::Scaling, reason, message))
}

fn recovering(view: &View, quorum: &Quorum) -> Option<Condition> {
    let silent: Vec<_> = view
        .voters()
        .filter(|voter| voter.started && !view.answers(voter))
        .filter(|voter| {
            view.pod(&voter.name).is_none_or(|pod| pod.updated && view.silent_for(voter).as_secs() >= 5)
        })
        .map(|voter| voter.name.as_str())
        .collect();
    if *quorum != Quorum::Holds || silent.is_empty() {
        return None;
    }
    Some(holds(ConditionKind::Recovering, "Recovering", format!("not answering: {}", silent.join(", "))))
}

fn upgrading_to(view: &View, target: Version) -> Condition {
    let hop = view.next_version().ok().filter(|hop| *hop != target);
    let mut message = vec![match hop {
        Some(hop) => format!("upgrading to {target}, through {hop} first"),
        None => format!("upgrading to {target}"),
    }];
    if view.size() <= 2 {
        message.push(format!("a cluster of {} does not answer while a member restarts", view.size()));
    }
    let failed = view.seen.image_checks.iter().find_map(|check| match &check.outcome {
        Check::Failed(reason) => Some(upgrade::image_failure(check, reason)),
        _ => None,
    });
    message.extend(failed);
    message.extend(precaution::awaited(view, hop.unwrap_or(target)));
    holds(ConditionKind::Upgrading, "Cluster upgrading", message.join("; "))
}

/// Something waits for a person.
fn degraded(rule: Rule, decision: &Decision) -> Option<Condition> {
    let waits_for_person = decision.stuck && rule != Rule::HandsOff;
    waits_for_person.then(|| warns(ConditionKind::Degraded, rule.name(), decision.why.clone()))
}

fn alarm(view: &View) -> Option<Condition> {
    let raised = view.seen.alarms.known().map_or(&[][..], Vec::as_slice);
    let has = |kind| raised.iter().any(|alarm| alarm.kind == kind);
    if has(AlarmKind::Corrupt) {
        let message = "a member found its data corrupt: replace the member that the CORRUPT alarm names";
        return Some(warns(ConditionKind::Alarm, "Corrupt", message));
    }
    if has(AlarmKind::NoSpace) {
        let message = "the database reached its quota and takes no writes: compact, defragment, raise ETCD_QUOTA_BACKEND_BYTES, then disarm the alarm";
        return Some(warns(ConditionKind::Alarm, "NoSpace", message));
    }
    let statuses = view.seen.statuses.values().filter_map(Read::known);
    let full = statuses.filter(|s| s.quota > 0 && s.db_size / QUOTA_PERCENT >= s.quota / 100).count();
    let message = format!("the database uses more than {QUOTA_PERCENT} % of its quota");
    (full > 0).then(|| warns(ConditionKind::Alarm, "QuotaNearlyUsed", message))
}

/// `Ready` and `Progressing`, for kubectl wait and kstatus. Their words change with the phase of the work only, not with
/// every step: each change is a write.
fn kstatus(
    view: &View,
    rule: Rule,
    decision: &Decision,
    refused: bool,
    so_far: &[Condition],
) -> Vec<Condition> {
    let steady = rule == Rule::Steady && !refused;
    let (reason, message) = match rule {
        Rule::Steady if refused => ("SpecInvalid", "the spec is not acted on: see SpecInvalid".to_owned()),
        Rule::Steady => ("MembersReady", settled_message(view)),
        Rule::HandsOff => ("HandsOff", decision.why.clone()),
        Rule::Rival => ("Rival", decision.why.clone()),
        Rule::Restore if decision.stuck => ("RestoreFailed", decision.why.clone()),
        Rule::Restore => ("Restoring", "see Restoring".to_owned()),
        Rule::Bootstrap if decision.stuck && refused => ("SpecInvalid", decision.why.clone()),
        Rule::Bootstrap if decision.stuck => ("CannotBegin", decision.why.clone()),
        Rule::Bootstrap => ("Creating", "the first member is being created".to_owned()),
        Rule::QuorumLost => ("QuorumLost", "see QuorumLost".to_owned()),
        Rule::Unknown => ("Unknown", "no member answers for the cluster".to_owned()),
        _ if so_far.iter().any(|c| c.kind == ConditionKind::Restoring && c.status == Truth::True) => {
            ("Restoring", "see Restoring".to_owned())
        }
        Rule::Upgrade => ("Upgrading", "see Upgrading".to_owned()),
        Rule::Template => ("RollingOut", "a changed pod template is being rolled out".to_owned()),
        _ if so_far.iter().any(|c| c.kind == ConditionKind::Upgrading) => {
            ("Upgrading", "see Upgrading".to_owned())
        }
        _ if so_far.iter().any(|c| c.kind == ConditionKind::Scaling) => ("Scaling", "see Scaling".to_owned()),
        _ => ("Reconciling", "members are being brought to where they should be".to_owned()),
    };
    let ready = Condition {
        status: if steady { Truth::True } else { Truth::False },
        ..holds(ConditionKind::Ready, reason, message.clone())
    };
    let moves = !steady && !decision.stuck;
    let progressing = Condition {
        status: if moves { Truth::True } else { Truth::False },
        ..holds(ConditionKind::Progressing, reason, message)
    };
    vec![ready, progressing]
}

fn settled_message(view: &View) -> String {
    match view.size() {
        size @ (1 | 2) => format!(
            "all members are ready; a cluster of {size} can spare none, so drains of its nodes are blocked"
        ),
        _ => "all members are ready".to_owned(),
    }
}

#[cfg(test)]
mod tests;
