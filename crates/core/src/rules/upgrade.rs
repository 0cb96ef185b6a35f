//! The version or repository differs: change images in place, one member at a time, so that the data stays.

use super::rollout::{bearable, move_leader, next, unready};
use super::{Decision, precaution};
use crate::ids::Name;
use crate::observation::{Check, ImageCheck, Member, Pod, Rolled};
use crate::report::Event;
use crate::step::{Action, Step};
use crate::version::Version;
use crate::view::View;

pub fn upgrade(view: &View) -> Option<Decision> {
    let version = match view.next_version() {
        Ok(version) => version,
        Err(refusal) => return tidy(view, None).or_else(|| Decision::stuck(refusal.to_string())),
    };
    let behind: Vec<_> = view.members().iter().filter(|member| differs(view, member, version)).collect();
    if behind.is_empty() {
        return tidy(view, None);
    }
    if let Some(member) = behind.iter().find(|member| astray(view, member)) {
        return redirect(view, member, version);
    }
    let back = |member: &&&Member| view.pod(&member.name).is_some_and(|pod| pod.version > version);
    if let Some(member) = next(view, behind.iter().filter(back).copied()) {
        return go_back(view, member, version);
    }
    go_on(view, &behind, version)
}

/// Neither where the others are nor back from its change: in mid-flight, it follows the target healthy or not. One that
/// only seems down, because we cannot hear it, is spared unless the others carry on without it.
fn astray(view: &View, member: &Member) -> bool {
    let (Some(lowest), Some(pod)) = (view.lowest_running(), view.pod(&member.name)) else { return false };
    pod.version != lowest && !view.healthy(member) && (!pod.running() || view.survives_restart(member))
}

fn redirect(view: &View, member: &Member, version: Version) -> Option<Decision> {
    let proven = view.members().iter().filter_map(|other| view.answer(other)).any(|s| s.version == version);
    let checked = if proven { None } else { try_image(view, &[member], version) };
    let first = checked.or_else(|| precaution::fresh_backup(view, version));
    first.or_else(|| roll_log(view, member, version)).or_else(|| patch(view, member, version))
}

fn differs(view: &View, member: &Member, version: Version) -> bool {
    view.pod(&member.name).is_some_and(|pod| !pod.deleting && view.image_differs(pod, version))
}

/// Back to what others still run: no image or hash to check, no perfect health to wait for. But quorum holds, and who went
/// back first is well: if etcd cannot go back after all, that costs one member, not several.
fn go_back(view: &View, member: &Member, version: Version) -> Option<Decision> {
    let gone_back = |other: &&Member| !differs(view, other, version);
    let all_well = view.members().iter().filter(gone_back).all(|other| view.healthy(other));
    if !all_well || !bearable(view, member) {
        return Decision::wait(format!("{} goes back to {version} once the others are healthy", member.name));
    }
    hand_over(view, member, version).or_else(|| patch(view, member, version))
}

fn go_on(view: &View, behind: &[&Member], version: Version) -> Option<Decision> {
    if let Some(reason) = unready(view) {
        return Decision::wait(format!("the upgrade to {version} waits: {reason}"));
    }
    let first = try_image(view, behind, version).or_else(|| precaution::fresh_backup(view, version));
    if let Some(decision) = first.or_else(|| check_hashes(view, version)) {
        return Some(decision);
    }
    let member = next(view, behind.iter().copied())?;
    if !bearable(view, member) {
        return Decision::wait(format!("{} is upgraded once a quorum of others is healthy", member.name));
    }
    roll_log(view, member, version)
        .or_else(|| hand_over(view, member, version))
        .or_else(|| patch(view, member, version))
}

/// The snapshot comes just after the entry that completes its count.
const SNAPSHOT_MARGIN: u64 = 100;

/// A member replays its log from its last snapshot on, which in a quiet cluster is far back or was never made. Where the
/// new version reads such a log wrongly, the log goes on until every member has made a new snapshot. One that does not run
/// is not kept from an image that may help it.
fn roll_log(view: &View, member: &Member, version: Version) -> Option<Decision> {
    let status = view.answer(member).filter(|status| version.misreads_log_of(status.version))?;
    let (cluster, newest) = (status.cluster, view.newest_entry());
    let same = |rolled: &Rolled| rolled.cluster == cluster && !rolled.version.before_minor_of(version);
    let until = newest + snapshot_count(view) + SNAPSHOT_MARGIN;
    let to = view.seen.rolled.filter(same).unwrap_or(Rolled { cluster, version, until });
    let before = format!("the log is rolled on before {} goes to {version}", member.name);
    if newest < to.until {
        let why = format!("{before}: {} entries to come", to.until - newest);
        return Decision::act(why, [Step::RollLog { to }]);
    }
    if status.applied_index < to.until { Decision::wait(before) } else { None }
}

/// That of the member which makes snapshots least often.
fn snapshot_count(view: &View) -> u64 {
    let pods = view.members().iter().filter_map(|member| view.pod(&member.name));
    pods.map(|pod| pod.snapshot_count).max().unwrap_or(0)
}

fn hand_over(view: &View, member: &Member, version: Version) -> Option<Decision> {
    move_leader(view, member, |heir| !differs(view, heir, version))
}

fn patch(view: &View, member: &Member, version: Version) -> Option<Decision> {
    let pod = view.pod(&member.name)?;
    let from = view.answer(member).map_or(pod.version, |status| status.version);
    let step = Step::PatchImage { name: pod.name.clone(), uid: pod.uid.clone(), version };
    let upgraded = (from != version).then(|| Event::member_upgraded(&pod.name, from, version));
    let events = precaution::omitted(view, version).into_iter().chain(upgraded).collect();
    Decision::act(format!("{} goes from {from} to {version}", pod.name), [Action { step, events }])
}

/// The image is seen to run on every node that will need it before the first member is touched.
fn try_image(view: &View, behind: &[&Member], version: Version) -> Option<Decision> {
    if let Some(tidied) = tidy(view, Some(version)) {
        return Some(tidied);
    }
    let mut nodes: Vec<_> = behind
        .iter()
        .filter_map(|member| view.pod(&member.name)?.node.as_ref())
        .map(|node| &node.name)
        .collect();
    nodes.sort_unstable();
    nodes.dedup();
    let check_on = |node: &Name| view.seen.image_checks.iter().find(|check| check.node == *node);
    let unchecked = nodes.iter().filter(|node| check_on(node).is_none());
    let steps: Vec<_> = unchecked.map(|node| Step::CheckImage { version, node: (*node).clone() }).collect();
    if !steps.is_empty() {
        return Decision::act(format!("the image of {version} is tried before a member gets it"), steps);
    }
    let checks = || nodes.iter().filter_map(|node| check_on(node));
    for check in checks() {
        if let Check::Failed(reason) | Check::Unknown(reason) = &check.outcome {
            return retry(view, check, reason);
        }
    }
    let running = checks().any(|check| check.outcome == Check::Running);
    if running { Decision::wait(format!("the image of {version} is being tried")) } else { None }
}

fn retry(view: &View, check: &ImageCheck, reason: &str) -> Option<Decision> {
    let why = image_failure(check, reason);
    if view.now.since(check.at) < view.spec.knobs.image_check_retry {
        return Decision::stuck(why);
    }
    Decision::act(format!("{why}; it is tried again"), [drop_check(check)])
}

pub fn image_failure(check: &ImageCheck, reason: &str) -> String {
    format!(
        "the image {}:v{} does not run on {}: {reason}; no member was touched by it, and setting the old version back clears this",
        check.repository, check.version, check.node
    )
}

/// Image checks that nobody waits for any more.
fn tidy(view: &View, wanted: Option<Version>) -> Option<Decision> {
    let stale = view
        .seen
        .image_checks
        .iter()
        .filter(|check| Some(check.version) != wanted || check.repository != view.spec.repository);
    let steps: Vec<_> = stale.map(drop_check).collect();
    if steps.is_empty() {
        return None;
    }
    Decision::act("image checks that are done with", steps)
}

fn drop_check(check: &ImageCheck) -> Step {
    Step::DropImageCheck { pod: check.pod.clone(), uid: check.uid.clone() }
}

/// Followers that were upgraded hold the same data as another follower. A mismatch stops; not knowing does not.
/// Never on the leader, since hashing reads everything.
fn check_hashes(view: &View, version: Version) -> Option<Decision> {
    let followers: Vec<_> =
        view.voters().filter(|voter| !view.leads(voter) && can_hash(view, voter)).collect();
    for member in followers.iter().filter(|member| !differs(view, member, version)) {
        let name = &member.name;
        let checked = view.seen.hash_checks.iter().find(|c| c.member == *name && c.version == version);
        match checked.map(|check| &check.outcome) {
            Some(Check::Failed(reason)) => {
                return Decision::stuck(format!(
                    "{name} holds other data than the rest since its upgrade to {version}: {reason}; set the version back and look into it"
                ));
            }
            Some(Check::Running) => return Decision::wait(format!("the data of {name} is being compared")),
            Some(Check::Passed | Check::Unknown(_)) => {}
            None => {
                let others = followers.iter().filter(|other| other.id != member.id);
                let Some(with) = others.min_by_key(|other| !differs(view, other, version)) else { continue };
                let (member, with) = (name.clone(), with.name.clone());
                return Decision::act(
                    format!("the data of {member} is compared with that of {with}"),
                    [Step::CompareHash { member, with, version }],
                );
            }
        }
    }
    None
}

fn can_hash(view: &View, voter: &Member) -> bool {
    view.answer(voter).is_some_and(|status| status.version.has_hashes())
}

/// Whether a pod is still to change on the way to the spec's version.
pub fn pending(view: &View, target: Version) -> bool {
    let off = |pod: &Pod| view.image_differs(pod, target);
    view.members().iter().filter_map(|member| view.pod(&member.name)).any(off)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::scene::{Scene, healthy};
    use super::*;
    use crate::ids::{ClusterId, MemberId};

    const ALL: &str = "check 3.5.17 on node-a, check 3.5.17 on node-b, check 3.5.17 on node-c";

    #[rstest]
    #[case::there(|_: &mut Scene| {}, "-")]
    #[case::images_first(|s: &mut Scene| s.want("3.5.17"), ALL)]
    #[case::images_being_tried(|s: &mut Scene| { s.want("3.5.17"); s.checked("3.5.17", &Check::Running, 1); }, "wait")]
    #[case::image_fails(|s: &mut Scene| { s.want("3.5.17"); s.checked("3.5.17", &bad(), 1); }, "stuck")]
    #[case::image_tried_again(|s: &mut Scene| { s.want("3.5.17"); s.checked("3.5.17", &bad(), 31); }, "drop check-node-a")]
    #[case::old_version_set_back(|s: &mut Scene| s.checked("3.5.17", &bad(), 1), "drop check-node-a, drop check-node-b, drop check-node-c")]
    #[case::followers_first(ready, "image b 3.5.17")]
    #[case::not_while_one_is_silent(|s: &mut Scene| { ready(s); s.silence("c", 1); }, "wait")]
    #[case::not_while_one_lags(|s: &mut Scene| { ready(s); s.status("c").applied_index = 1; }, "wait")]
    #[case::not_while_one_joins(|s: &mut Scene| { ready(s); s.spec.size = 4; s.learner("d"); }, "wait")]
    #[case::not_while_one_is_missing(|s: &mut Scene| { ready(s); s.spec.size = 4; }, "wait")]
    #[case::not_while_one_restarts(|s: &mut Scene| { ready(s); s.pod("b").version = Version::new(3, 5, 17); }, "wait")]
    #[case::hash_compared(|s: &mut Scene| { ready(s); s.run_one("b", "3.5.17"); }, "compare b with c")]
    #[case::hash_agrees(|s: &mut Scene| { b_done(s); s.hashed("b", "3.5.17", Check::Passed); }, "image c 3.5.17")]
    #[case::hash_unknown(|s: &mut Scene| { b_done(s); s.hashed("b", "3.5.17", Check::Unknown("compacted".into())); }, "image c 3.5.17")]
    #[case::hash_mismatch(|s: &mut Scene| { b_done(s); s.hashed("b", "3.5.17", bad()); }, "stuck")]
    #[case::leader_moved_before_its_turn(|s: &mut Scene| { b_done(s); c_done(s); }, "move leader to b")]
    #[case::leader_has_moved(|s: &mut Scene| {
        b_done(s);
        c_done(s);
        for name in ["a", "b", "c"] {
            s.status(name).leader = Some(MemberId(98));
        }
    }, "image a 3.5.17")]
    #[case::done(|s: &mut Scene| { s.run("3.5.17"); s.checked("3.5.17", &Check::Passed, 9); }, "drop check-node-a, drop check-node-b, drop check-node-c")]
    #[case::two_minors_by_hops(|s: &mut Scene| {
        s.run("3.4.15");
        s.want("3.6.16");
        s.checked("3.5.35", &Check::Passed, 1);
        s.rolled("3.5.35", 50_000);
    }, "image b 3.5.35")]
    #[case::log_rolled_first(to_3_6, "roll log to 52600 for 3.6.16")]
    #[case::log_as_the_laziest_member(|s: &mut Scene| { to_3_6(s); s.pod("c").snapshot_count = 100_000; }, "roll log to 150100 for 3.6.16")]
    #[case::log_half_way(|s: &mut Scene| { to_3_6(s); s.rolled("3.6.16", 50_001); }, "roll log to 50001 for 3.6.16")]
    #[case::log_not_yet_applied(|s: &mut Scene| { to_3_6(s); s.rolled("3.6.16", 50_000); s.status("b").applied_index = 49_999; }, "wait")]
    #[case::log_rolled(|s: &mut Scene| { to_3_6(s); s.rolled("3.6.16", 50_000); }, "image b 3.6.16")]
    #[case::log_rolled_for_another_patch(|s: &mut Scene| { to_3_6(s); s.rolled("3.6.4", 50_000); }, "image b 3.6.16")]
    #[case::log_of_another_cluster(|s: &mut Scene| {
        to_3_6(s);
        s.rolled("3.6.16", 50_000);
        s.seen.rolled.as_mut().unwrap().cluster = ClusterId(7);
    }, "roll log to 52600 for 3.6.16")]
    #[case::log_rolled_for_the_minor_before(|s: &mut Scene| { to_3_6(s); s.rolled("3.5.35", 50_000); }, "roll log to 52600 for 3.6.16")]
    #[case::bridge_to_3_6(|s: &mut Scene| { s.want("3.6.16"); s.checked("3.5.35", &Check::Passed, 1); }, "image b 3.5.35")]
    #[case::downgrade(|s: &mut Scene| s.want("3.4.15"), "stuck")]
    #[case::unknown_minor(|s: &mut Scene| s.want("3.9.0"), "stuck")]
    #[case::unreadable(|s: &mut Scene| s.want("latest"), "stuck")]
    #[case::going_back(|s: &mut Scene| { b_done(s); s.want("3.5.16"); s.seen.image_checks.clear(); }, "image b 3.5.16")]
    #[case::going_back_from_what_never_started(|s: &mut Scene| {
        b_done(s);
        s.crash("b", 30);
        s.want("3.5.16");
    }, "image b 3.5.16")]
    #[case::going_back_below_quorum(|s: &mut Scene| { b_done(s); s.want("3.5.16"); s.silence("c", 1); }, "wait")]
    #[case::too_late_to_go_back(|s: &mut Scene| { s.run("3.6.16"); s.want("3.5.35"); }, "stuck")]
    #[case::agreed_on_the_new_minor(|s: &mut Scene| {
        s.run("3.6.16");
        s.silence("c", 1);
        s.seen.recorded.version = Some(Version::new(3, 5, 35));
        s.seen.agreed = Some(Version::new(3, 6, 0));
        s.want("3.5.35");
    }, "stuck")]
    #[case::new_target_for_one_in_mid_flight(|s: &mut Scene| {
        b_done(s);
        s.crash("b", 30);
        s.want("3.5.18");
        s.seen.image_checks.clear();
    }, "check 3.5.18 on node-b")]
    #[case::repository(|s: &mut Scene| {
        s.spec.repository = "other".into();
        s.checked("3.5.16", &Check::Passed, 1);
        s.seen.image_checks.iter_mut().for_each(|check| check.repository = "other".into());
    }, "image b 3.5.16")]
    fn cases(#[case] change: fn(&mut Scene), #[case] says: &str) {
        let mut scene = healthy("abc");
        change(&mut scene);
        assert_eq!(scene.ask(upgrade), says);
    }

    fn bad() -> Check {
        Check::Failed("exit code 1".into())
    }

    /// To 3.5.17, and its image runs everywhere.
    fn ready(scene: &mut Scene) {
        scene.want("3.5.17");
        scene.checked("3.5.17", &Check::Passed, 1);
    }

    /// From 3.5.35 to 3.6.16, and its image runs everywhere.
    fn to_3_6(scene: &mut Scene) {
        scene.run("3.5.35");
        scene.want("3.6.16");
        scene.checked("3.6.16", &Check::Passed, 1);
    }

    fn b_done(scene: &mut Scene) {
        ready(scene);
        scene.run_one("b", "3.5.17");
    }

    fn c_done(scene: &mut Scene) {
        scene.run_one("c", "3.5.17");
        scene.hashed("b", "3.5.17", Check::Passed);
        scene.hashed("c", "3.5.17", Check::Passed);
    }

    #[rstest]
    #[case::alone("a", "image a 3.5.17")]
    #[case::pair("ab", "image b 3.5.17")]
    fn small_clusters_are_upgraded_all_the_same(#[case] names: &str, #[case] says: &str) {
        let mut scene = healthy(names);
        ready(&mut scene);
        assert_eq!(scene.ask(upgrade), says);
    }

    #[test]
    fn old_leaders_hand_over_by_themselves() {
        let mut scene = healthy("abc");
        scene.run("3.2.13");
        scene.want("3.2.14");
        scene.checked("3.2.14", &Check::Passed, 1);
        scene.run_one("b", "3.2.14");
        scene.run_one("c", "3.2.14");
        assert_eq!(scene.ask(upgrade), "image a 3.2.14");
    }
}
