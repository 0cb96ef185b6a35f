//! What clients and drains rely on: started voters are disarmed and labelled, services exist, the budget fits.

use super::Decision;
use crate::observation::Pod;
use crate::quorum;
use crate::step::Step;
use crate::view::View;

pub fn serve(view: &View) -> Option<Decision> {
    let mut steps = Vec::new();
    if !view.seen.headless_service {
        steps.push(Step::EnsureHeadlessService);
    }
    steps.extend(unmarked(view));
    steps.extend(inherited(view));
    // No client gets in before somebody is there to serve who cannot start empty again.
    let served = view.seen.pods.iter().any(|pod| pod.serving && !pod.armed)
        || steps.iter().any(|step| matches!(step, Step::MarkPod { .. }));
    if !view.seen.client_service && served {
        steps.push(Step::EnsureClientService);
    }
    steps.extend(fitting_budget(view));
    if steps.is_empty() {
        return None;
    }
    Decision::act("clients reach the started voters, and drains spare their quorum", steps)
}

fn unmarked(view: &View) -> impl Iterator<Item = Step> {
    started(view).filter(|pod| pod.armed || !pod.serving).map(|pod| Step::MarkPod {
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        disarm: pod.armed,
        serve: true,
    })
}

fn inherited(view: &View) -> impl Iterator<Item = Step> {
    let pods = started(view).filter(|pod| pod.is_inherited());
    pods.map(|pod| Step::Adopt { name: pod.name.clone(), uid: pod.uid.clone() })
}

/// The pods of voters that started and answer.
fn started<'a>(view: &'a View<'a>) -> impl Iterator<Item = &'a Pod> {
    let voters = view.voters().filter(|voter| voter.started && view.answers(voter));
    voters.filter_map(|voter| view.pod(&voter.name)).filter(|pod| !pod.deleting)
}

/// The quorum of the voters. It comes with the second voter, and is lowered only once no more are to come: a raise
/// that waits for its promotion is not undone.
fn fitting_budget(view: &View) -> Option<Step> {
    let voters = view.voter_count();
    let fits = u32::try_from(quorum::quorum(voters)).unwrap_or(u32::MAX);
    let full = voters >= view.wanted() && view.learners().count() == 0;
    let changes = match view.seen.budget {
        None => voters >= view.size().min(2),
        Some(budget) => budget < fits || (budget > fits && full),
    };
    changes.then_some(Step::SetBudget { min_available: fits })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::scene::{Scene, healthy};
    use super::*;

    #[rstest]
    #[case::all_set(|_: &mut Scene| {}, "-")]
    #[case::new_voter(|s: &mut Scene| { s.pod("c").armed = true; s.pod("c").serving = false; }, "mark c disarm serve")]
    #[case::recreated(|s: &mut Scene| s.pod("c").serving = false, "mark c serve")]
    #[case::inherited(|s: &mut Scene| { s.pod("c").template = String::new(); s.pod("c").serving = false; }, "mark c serve, adopt c")]
    #[case::not_before_it_answers(|s: &mut Scene| { s.pod("c").serving = false; s.silence("c", 1); }, "-")]
    #[case::never_a_learner(|s: &mut Scene| s.learner("d"), "-")]
    #[case::services_missing(|s: &mut Scene| { s.seen.client_service = false; s.seen.headless_service = false; }, "headless, client")]
    #[case::no_client_before_anyone_is_disarmed(|s: &mut Scene| {
        s.seen.client_service = false;
        for name in ["a", "b", "c"] {
            s.pod(name).armed = true;
            s.silence(name, 1);
        }
    }, "-")]
    #[case::budget_missing(|s: &mut Scene| s.seen.budget = None, "budget 2")]
    #[case::budget_too_low(|s: &mut Scene| s.seen.budget = Some(1), "budget 2")]
    #[case::budget_too_high(|s: &mut Scene| s.seen.budget = Some(3), "budget 2")]
    #[case::raised_for_one_to_come(|s: &mut Scene| { s.seen.budget = Some(3); s.spec.size = 4; }, "-")]
    fn cases(#[case] change: fn(&mut Scene), #[case] says: &str) {
        let mut scene = healthy("abc");
        change(&mut scene);
        assert_eq!(scene.ask(serve), says);
    }

    #[test]
    fn a_budget_comes_with_the_second_voter_or_with_the_only_one() {
        let mut scene = healthy("a");
        scene.seen.budget = None;
        assert_eq!(scene.ask(serve), "budget 1");
        scene.spec.size = 3;
        assert_eq!(scene.ask(serve), "-");
    }
}
