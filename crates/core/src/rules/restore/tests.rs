//! Tables: a request, a seed, a failure, those before, the end.

use rstest::rstest;

use super::*;
use crate::ids::{ClusterId, MemberId, Uid};
use crate::observation::{Failing, Member, PodPhase, Read, Recorded, Seed};
use crate::rules::scene::{NOW, Scene, healthy, on_volumes};

fn asked(scene: &mut Scene, backup: &str) {
    let version = Some(backup.parse().unwrap());
    scene.spec.restore = Some(RestoreRequest { uid: Uid::from("r1"), name: "r".to_owned(), version });
}

fn recorded(scene: &mut Scene, stage: Stage, replaced: &str) {
    let replaced = replaced.chars().map(|name| Name(name.to_string())).collect();
    scene.seen.recorded.restore =
        Some(Restore { request: Uid::from("r1"), seed: "s".into(), stage, again: 0, replaced });
}

/// The seed's pod runs; what it says of itself is not of the recorded cluster.
fn seeded(scene: &mut Scene) {
    scene.learner("s");
    let Read::Known(mut members) = scene.seen.members.clone() else { panic!("no list") };
    members.retain(|member| member.name.as_str() != "s");
    scene.seen.members = Read::Known(members);
    scene.seen.statuses.remove(&Name::from("s"));
}

fn answers(scene: &mut Scene) {
    let mut status = scene.status("a").clone();
    (status.cluster, status.member, status.leader) = (ClusterId(2), MemberId(7), Some(MemberId(7)));
    let peer_urls = vec!["http://s:2380".to_owned()];
    let member = Member { id: MemberId(7), name: "s".into(), peer_urls, learner: false, started: true };
    scene.seen.seed = Some(Seed { status, members: vec![member] });
}

fn lost(scene: &mut Scene) {
    scene.lose_pod("b");
    scene.lose_pod("c");
    scene.dark();
}

fn nothing(scene: &mut Scene) {
    *scene = healthy("");
    scene.spec.size = 3;
    scene.seen.recorded = Recorded::default();
    scene.seen.headless_service = false;
    scene.seen.client_service = false;
    scene.dark();
}

#[rstest]
#[case::not_asked(|_: &mut Scene| {}, "-")]
#[case::of_a_living_cluster(|s: &mut Scene| asked(s, "3.5.16"), "record restore seeding x, restored seed x 3.5.16")]
#[case::after_a_loss(|s: &mut Scene| { lost(s); asked(s, "3.5.16"); }, "record restore seeding x, restored seed x 3.5.16")]
#[case::into_nothing(|s: &mut Scene| { nothing(s); asked(s, "3.5.16"); }, "record restore seeding x, headless, restored seed x 3.5.16")]
#[case::on_its_own_minor(|s: &mut Scene| { asked(s, "3.4.15"); }, "record restore seeding x, restored seed x 3.4.15")]
#[case::newer_than_the_spec(|s: &mut Scene| asked(s, "3.6.16"), "record restore failed x")]
#[case::served_before(|s: &mut Scene| { asked(s, "3.5.16"); recorded(s, Stage::Done, ""); }, "-")]
#[case::failed_before(|s: &mut Scene| { asked(s, "3.5.16"); recorded(s, Stage::Failed(String::new()), ""); }, "-")]
#[case::another_after_it(|s: &mut Scene| {
    recorded(s, Stage::Done, "");
    asked(s, "3.5.16");
    s.spec.restore.as_mut().unwrap().uid = "r2".into();
}, "record restore seeding x, restored seed x 3.5.16")]
#[case::another_before_it_was_full(|s: &mut Scene| {
    recorded(s, Stage::Filling, "qr");
    asked(s, "3.5.16");
    s.spec.restore.as_mut().unwrap().uid = "r2".into();
}, "record restore seeding x for qr, restored seed x 3.5.16")]
fn a_request(#[case] change: fn(&mut Scene), #[case] says: &str) {
    let mut scene = healthy("abc");
    change(&mut scene);
    assert_eq!(scene.ask(restore), says);
}

#[rstest]
#[case::crash_before_the_pod(|s: &mut Scene| s.lose_pod("s"), "restored seed s 3.5.16", "delete claim s")]
#[case::being_made(|_: &mut Scene| {}, "wait", "wait")]
#[case::evicted(|s: &mut Scene| s.pod("s").phase = PodPhase::Failed, "delete pod s", "delete pod s")]
#[case::killed(|s: &mut Scene| s.pod("s").deleting = true, "wait", "wait")]
#[case::the_store_is_away_for_a_moment(|s: &mut Scene| fails(s, 3), "wait", "wait")]
#[case::the_store_is_away(|s: &mut Scene| fails(s, 4), "record restore failed s", "record restore failed s")]
#[case::half_made(|s: &mut Scene| spoils(s, 0), "record restore seeding s, delete pod s", "record restore seeding s, delete pod s")]
#[case::half_made_again_and_again(|s: &mut Scene| spoils(s, 3), "record restore failed s", "record restore failed s")]
#[case::finds_no_node(|s: &mut Scene| s.pod("s").node = None, "record restore failed s", "record restore failed s")]
#[case::finds_no_node_yet(|s: &mut Scene| {
    s.pod("s").node = None;
    s.pod("s").created = NOW;
}, "wait", "wait")]
#[case::finds_no_image(|s: &mut Scene| s.pod("s").waiting = Some("ErrImagePull".into()), "record restore failed s", "record restore failed s")]
#[case::never_starts(|s: &mut Scene| s.pod("s").begun = false, "record restore failed s", "record restore failed s")]
#[case::has_not_started_yet(|s: &mut Scene| {
    s.pod("s").begun = false;
    s.pod("s").created = NOW;
}, "wait", "wait")]
#[case::withdrawn(|s: &mut Scene| s.spec.restore = None, "record restore failed s", "record restore failed s")]
#[case::version_lowered(|s: &mut Scene| s.want("3.4.15"), "record restore failed s", "record restore failed s")]
#[case::version_changed(|s: &mut Scene| s.want("3.5.17"), "delete pod s", "delete pod s, delete claim s")]
#[case::answers(
    answers,
    "swap to 2 filling s for abc, stop serving a, stop serving b, stop serving c, mark s disarm serve",
    "swap to 2 filling s for abc, delete pod a, delete pod b, delete pod c, mark s disarm serve"
)]
#[case::answers_after_a_loss(|s: &mut Scene| { answers(s); lost(s); },
    "swap to 2 filling s for a, stop serving a, mark s disarm serve",
    "swap to 2 filling s for abc, delete pod a, mark s disarm serve")]
#[case::no_leader_yet(|s: &mut Scene| {
    answers(s);
    s.seen.seed.as_mut().unwrap().status.leader = None;
}, "wait", "wait")]
#[case::somebody_else_answers(|s: &mut Scene| {
    answers(s);
    s.seen.seed.as_mut().unwrap().status.member = MemberId(8);
}, "wait", "wait")]
#[case::it_is_in_the_old_cluster(|s: &mut Scene| {
    answers(s);
    s.seen.seed.as_mut().unwrap().status.cluster = ClusterId(1);
}, "wait", "wait")]
fn a_seed(#[case] change: fn(&mut Scene), #[case] on_empty_dir: &str, #[case] on_volume: &str) {
    for (mut scene, says) in [(healthy("abc"), on_empty_dir), (on_volumes("abc"), on_volume)] {
        asked(&mut scene, "3.5.16");
        recorded(&mut scene, Stage::Seeding, "");
        seeded(&mut scene);
        change(&mut scene);
        assert_eq!(scene.ask(restore), says);
    }
}

/// For the first time in this pod; so many were made before.
fn spoils(scene: &mut Scene, again: u32) {
    fails(scene, 1);
    scene.pod("s").failing.as_mut().unwrap().spoils = true;
    scene.seen.recorded.restore.as_mut().unwrap().again = again;
}

fn fails(scene: &mut Scene, times: u32) {
    scene.pod("s").failing = Some(Failing { times, words: "no route".to_owned(), spoils: false });
}

#[rstest]
#[case::seed_left(|_: &mut Scene| {}, "delete pod s, delete claim s")]
#[case::seed_goes(|s: &mut Scene| { s.pod("s").deleting = true; s.claim("s").deleting = true; }, "-")]
#[case::nothing_else_there(|s: &mut Scene| {
    nothing(s);
    asked(s, "3.5.16");
    recorded(s, Stage::Failed("no route".to_owned()), "");
}, "stuck")]
fn a_failure(#[case] change: fn(&mut Scene), #[case] says: &str) {
    let mut scene = on_volumes("abc");
    asked(&mut scene, "3.5.16");
    recorded(&mut scene, Stage::Failed("no route".to_owned()), "");
    seeded(&mut scene);
    change(&mut scene);
    assert_eq!(scene.ask(restore), says);
}

/// `abc` is the restored cluster, `old` was there before.
fn filling(mut scene: Scene, old: &str) -> Scene {
    for name in old.chars() {
        scene.learner(&name.to_string());
        let pod = scene.pod(&name.to_string());
        (pod.armed, pod.serving) = (false, true);
    }
    let Read::Known(mut members) = scene.seen.members.clone() else { panic!("no list") };
    members.retain(|member| !old.contains(member.name.as_str()));
    scene.seen.members = Read::Known(members);
    asked(&mut scene, "3.5.16");
    recorded(&mut scene, Stage::Filling, old);
    scene
}

#[rstest]
#[case::crash_after_the_swap(|_: &mut Scene| {}, "stop serving q", "delete pod q")]
#[case::all_retired(retired, "-", "-")]
#[case::a_joiner_finds_no_node(|s: &mut Scene| { retired(s); s.pod("c").node = None; }, "delete pod q", "-")]
#[case::a_joiner_was_just_made(|s: &mut Scene| {
    retired(s);
    s.pod("c").node = None;
    s.pod("c").created = NOW;
}, "-", "-")]
fn those_before(#[case] change: fn(&mut Scene), #[case] on_empty_dir: &str, #[case] on_volume: &str) {
    for (scene, says) in [(healthy("abc"), on_empty_dir), (on_volumes("abc"), on_volume)] {
        let mut scene = filling(scene, "q");
        change(&mut scene);
        assert_eq!(scene.ask(restore), says);
    }
}

fn retired(scene: &mut Scene) {
    if scene.seen.claims.is_empty() {
        scene.pod("q").serving = false;
    } else {
        scene.lose_pod("q");
    }
}

#[rstest]
#[case::full(|_: &mut Scene| {}, "record restore done s")]
#[case::one_missing(|s: &mut Scene| s.spec.size = 4, "-")]
#[case::one_joins(|s: &mut Scene| s.learner("d"), "-")]
#[case::one_is_silent(|s: &mut Scene| s.silence("b", 1), "-")]
#[case::one_lags(|s: &mut Scene| s.status("b").applied_index = 1, "-")]
#[case::nothing_is_told_of_the_seed_yet(|s: &mut Scene| {
    s.seen.recorded.restore.as_mut().unwrap().seed = "a".into();
    s.pod("a").phase = PodPhase::Pending;
}, "-")]
#[case::a_later_one_failed(|s: &mut Scene| {
    recorded(s, Stage::Failed(String::new()), "q");
}, "record restore failed s")]
#[case::done(|s: &mut Scene| recorded(s, Stage::Done, ""), "-")]
#[case::ordinary(|s: &mut Scene| s.seen.recorded.restore = None, "-")]
fn the_end(#[case] change: fn(&mut Scene), #[case] says: &str) {
    let mut scene = filling(healthy("abc"), "q");
    change(&mut scene);
    assert_eq!(scene.ask(finish), says);
}

#[test]
fn no_other_rule_sees_what_was_replaced() {
    let mut scene = filling(on_volumes("abc"), "q");
    retired(&mut scene);
    scene.spec.size = 4;
    for (rule, speak) in crate::rules::GATES.iter().chain(&crate::rules::RULES) {
        let said = scene.ask(*speak);
        assert!(!said.contains(" q"), "{}: {said}", rule.name());
    }
    scene.seen.recorded.restore.as_mut().unwrap().replaced.clear();
    assert_eq!(scene.ask(crate::rules::stray::stray), "delete claim q", "and then it goes");
}
