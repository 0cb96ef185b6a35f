//! The question to the checker, and its answer.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use domain::sim::World;
use stateright::{Checker as _, HasDiscoveries, Model, Path, Property};

use crate::act::Act;
use crate::goal::Known;
use crate::shared::{Parts, State};
use crate::story;

/// A world to start from, and the troubles that may happen in it.
#[derive(Clone)]
pub struct Question {
    pub name: String,
    pub world: World,
    /// How many troubles there may be in all.
    pub troubles: u8,
    /// Which; the operator may die after any of its steps besides.
    pub menu: Vec<Act>,
}

/// What the checker found.
pub struct Answer {
    pub question: String,
    pub states: usize,
    pub depth: usize,
    pub took: Duration,
    /// The whole bounded space was walked.
    pub whole: bool,
    pub violation: Option<String>,
}

/// How often a walk is asked whether it is done, and how often people are told how far it is.
const LOOK: Duration = Duration::from_millis(20);
const TELL: Duration = Duration::from_secs(10);

const SAFE: &str = "no law is broken";
const LIVE: &str = "from here the end is the spec";

struct Checked {
    question: Question,
    parts: Parts,
    known: Known,
    found: AtomicBool,
    /// So many states were seen that no other is looked for.
    enough: AtomicBool,
}

impl Question {
    /// Walks until all is walked, something is found, or that many distinct states were seen.
    pub fn ask(&self, threads: usize, at_most: Option<usize>) -> Answer {
        let started = Instant::now();
        let checked = Checked {
            question: self.clone(),
            parts: Parts::default(),
            known: Known::default(),
            found: AtomicBool::new(false),
            enough: AtomicBool::new(false),
        };
        let walk = checked.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures).spawn_bfs();
        let mut told = started;
        while !walk.is_done() {
            std::thread::sleep(LOOK);
            if at_most.is_some_and(|most| walk.unique_state_count() >= most) {
                walk.model().enough.store(true, Ordering::Relaxed);
            }
            if told.elapsed() >= TELL {
                told = Instant::now();
                eprintln!("{}: {} distinct states so far", self.name, walk.unique_state_count());
            }
        }
        let checker = walk.join();
        let violation = checker.discoveries().into_values().next().map(|path| tell(checker.model(), path));
        Answer {
            question: self.name.clone(),
            states: checker.unique_state_count(),
            depth: checker.max_depth(),
            took: started.elapsed(),
            // A violation ends the walk early.
            whole: violation.is_none() && !checker.model().enough.load(Ordering::Relaxed),
            violation,
        }
    }
}

fn tell(model: &Checked, path: Path<State, Act>) -> String {
    let last = path.last_state().clone();
    let end = last.broken().first().cloned().or_else(|| model.known.disappointment(last.world()));
    story::tell(&model.question.world, &path.into_actions(), &end.unwrap_or_default())
}

impl Model for Checked {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        vec![self.parts.pack(self.question.world.clone(), None, self.question.troubles)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Act>) {
        if !state.broken().is_empty() || self.enough.load(Ordering::Relaxed) {
            return;
        }
        actions.extend([Act::Reconcile, Act::Pass]);
        if state.rival.is_some() {
            actions.push(Act::RivalActs);
        }
        if state.troubles > 0 {
            actions.extend(&self.question.menu);
            actions.extend(Act::crashes(&state.world()));
        }
    }

    fn next_state(&self, state: &State, act: Act) -> Option<State> {
        let mut world = state.world();
        let mut rival = state.rival.as_deref().cloned();
        act.happen(&mut world, &mut rival)?;
        let troubles = state.troubles - u8::from(act.is_trouble());
        // A cache that cannot be stale any more is never read before it is filled anew.
        if troubles == 0 {
            world.cache = Default::default();
        }
        Some(self.parts.pack(world, rival, troubles))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SAFE, |model: &Self, state: &State| model.holds(state.broken().is_empty())),
            Property::always(LIVE, |model: &Self, state: &State| {
                model.holds(!state.broken().is_empty() || model.known.disappointment(state.world()).is_none())
            }),
        ]
    }
}

impl Checked {
    /// The first that does not hold is on the shortest way; later ones do not replace it.
    fn holds(&self, holds: bool) -> bool {
        holds || self.found.swap(true, Ordering::Relaxed)
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { question, states, depth, took, whole, violation } = self;
        let extent = if *whole { "all of them" } else { "not all of them" };
        write!(
            f,
            "{question}: {states} distinct states ({extent}), {depth} deep, {:.1} s",
            took.as_secs_f64()
        )?;
        match violation {
            Some(story) => write!(f, "\n{story}"),
            None => Ok(()),
        }
    }
}
