//! No way leads back from a new minor but a restore: where somebody makes backups, a fresh one comes first.

use std::time::Duration;

use super::Decision;
use crate::observation::{AskedBackup, Check, Read};
use crate::report::Event;
use crate::step::Step;
use crate::version::Version;
use crate::view::View;

/// How long it may take until somebody begins with a backup that was asked for.
const PATIENCE: Duration = Duration::from_mins(1);

/// Speaks until a backup was made for this very upgrade, if an EtcdBackup names the cluster. A failed one is tried again
/// by its own controller; whoever wants to go on without it suspends the EtcdBackup.
pub fn fresh_backup(view: &View, version: Version) -> Option<Decision> {
    if !begins_minor(view, version) {
        return None;
    }
    let backups = match &view.seen.backups {
        Read::Known(backups) => backups,
        Read::Unknown(why) => {
            return Decision::wait(format!(
                "the upgrade to {version} waits: EtcdBackups cannot be read: {why}"
            ));
        }
    };
    let of = backups.named.as_ref()?;
    let Some(asked) = backups.asked.iter().find(|asked| asked.version == version && asked.of == *of) else {
        return Decision::act(
            format!("a backup is made before the upgrade to {version}, as EtcdBackup {of} says"),
            [Step::BackUp { of: of.clone(), version }],
        );
    };
    let AskedBackup { name, .. } = asked;
    let way_out = format!("to upgrade without it, suspend EtcdBackup {of}");
    match &asked.outcome {
        Check::Passed => None,
        Check::Failed(why) => Decision::stuck(format!(
            "the upgrade to {version} waits for EtcdBackup {name}, which failed and is tried again: {why}; {way_out}"
        )),
        Check::Unknown(_) if view.now.since(asked.at) >= PATIENCE => Decision::stuck(format!(
            "the upgrade to {version} waits for EtcdBackup {name}, which nobody begins: is a backup operator running? {way_out}"
        )),
        Check::Running | Check::Unknown(_) => {
            Decision::wait(format!("the upgrade to {version} waits for EtcdBackup {name}"))
        }
    }
}

/// What the upgrade waits for, if that is a backup.
pub fn awaited(view: &View, version: Version) -> Option<String> {
    fresh_backup(view, version).filter(|decision| decision.actions.is_empty()).map(|decision| decision.why)
}

/// What is said with the first member that goes to a new minor without a backup.
pub fn omitted(view: &View, version: Version) -> Option<Event> {
    let named = view.seen.backups.known().is_some_and(|backups| backups.named.is_some());
    (!named && begins_minor(view, version)).then(|| Event::no_backup(version))
}

/// Nobody is there yet.
fn begins_minor(view: &View, version: Version) -> bool {
    let mut pods = view.members().iter().filter_map(|member| view.pod(&member.name)).peekable();
    pods.peek().is_some() && pods.all(|pod| pod.version.before_minor_of(version))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::scene::{NOW, Scene, healthy};
    use super::super::upgrade::upgrade;
    use super::*;
    use crate::observation::Backups;
    use crate::time::Moment;

    #[rstest]
    #[case::nobody_names_it(|_: &mut Scene| {}, "image b 3.6.16")]
    #[case::asked_for(named, "back up as nightly before 3.6.16")]
    #[case::under_way(|s: &mut Scene| asked(s, "3.6.16", Check::Running, 300), "wait")]
    #[case::not_begun(|s: &mut Scene| asked(s, "3.6.16", unknown(), 59), "wait")]
    #[case::nobody_begins(|s: &mut Scene| asked(s, "3.6.16", unknown(), 60), "stuck")]
    #[case::failed(|s: &mut Scene| asked(s, "3.6.16", Check::Failed("no bucket".into()), 1), "stuck")]
    #[case::made(|s: &mut Scene| asked(s, "3.6.16", Check::Passed, 1), "image b 3.6.16")]
    #[case::made_for_another_hop(|s: &mut Scene| asked(s, "3.5.35", Check::Passed, 1), "back up as nightly before 3.6.16")]
    #[case::made_as_another_says(|s: &mut Scene| {
        asked(s, "3.6.16", Check::Passed, 1);
        backups(s).asked[0].of = "weekly".into();
    }, "back up as nightly before 3.6.16")]
    #[case::suspended(|s: &mut Scene| {
        asked(s, "3.6.16", Check::Failed("no bucket".into()), 1);
        backups(s).named = None;
    }, "image b 3.6.16")]
    #[case::not_known(|s: &mut Scene| s.seen.backups = Read::Unknown("no answer".into()), "wait")]
    #[case::begun(|s: &mut Scene| {
        named(s);
        s.run_one("b", "3.6.16");
        s.hashed("b", "3.6.16", Check::Passed);
    }, "image c 3.6.16")]
    fn before_a_new_minor(#[case] change: fn(&mut Scene), #[case] says: &str) {
        let mut scene = healthy("abc");
        scene.run("3.5.35");
        scene.want("3.6.16");
        scene.checked("3.6.16", &Check::Passed, 1);
        scene.rolled("3.6.16", 1);
        change(&mut scene);
        assert_eq!(scene.ask(upgrade), says);
    }

    #[test]
    fn a_patch_needs_none() {
        let mut scene = healthy("abc");
        scene.want("3.5.17");
        scene.checked("3.5.17", &Check::Passed, 1);
        named(&mut scene);
        assert_eq!(scene.ask(upgrade), "image b 3.5.17");
    }

    #[rstest]
    #[case::first("abc", &["No Backup", "Member Upgraded"])]
    #[case::later("b", &["Member Upgraded"])]
    fn going_without_is_said_once(#[case] still_there: &str, #[case] reasons: &[&str]) {
        let mut scene = healthy("abc");
        scene.run("3.5.35");
        scene.want("3.6.16");
        scene.checked("3.6.16", &Check::Passed, 1);
        scene.rolled("3.6.16", 1);
        if still_there == "b" {
            scene.run_one("b", "3.6.16");
            scene.hashed("b", "3.6.16", Check::Passed);
        }
        let decision = scene.with_view(upgrade).unwrap();
        let events = decision.actions.iter().flat_map(|action| &action.events);
        assert_eq!(events.map(|event| event.reason.as_str()).collect::<Vec<_>>(), reasons);
    }

    fn unknown() -> Check {
        Check::Unknown("not begun".into())
    }

    fn backups(scene: &mut Scene) -> &mut Backups {
        match &mut scene.seen.backups {
            Read::Known(backups) => backups,
            Read::Unknown(why) => panic!("{why}"),
        }
    }

    fn named(scene: &mut Scene) {
        backups(scene).named = Some("nightly".into());
    }

    fn asked(scene: &mut Scene, version: &str, outcome: Check, seconds: u64) {
        named(scene);
        let at = Moment(NOW.0 - seconds * 1000);
        let (name, of, version) = ("copy".into(), "nightly".into(), version.parse().unwrap());
        backups(scene).asked.push(AskedBackup { name, of, version, outcome, at });
    }
}
