//! What clients and drains rely on: started voters are disarmed and labelled, services exist, the budget fits.

use super::Decision;
use crate::quorum;
use crate::step::Step;
use crate::view::View;

pub fn serve(view: &View) -> Option<Decision> {
    let mut steps = Vec::new();
    if !view.seen.headless_service {
        steps.push(Step::EnsureHeadlessService);
    }
    steps.extend(unmarked(view));
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
    let voters = view.voters().filter(|voter| voter.started && view.answers(voter));
    let pods = voters.filter_map(|voter| view.pod(&voter.name));
    pods.filter(|pod| !pod.deleting && (pod.armed || !pod.serving)).map(|pod| Step::MarkPod {
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        disarm: pod.armed,
        serve: true,
    })
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
