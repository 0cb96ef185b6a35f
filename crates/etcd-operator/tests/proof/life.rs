//! One life: a trouble for each of its steps, and what came of each step.

use std::collections::BTreeMap;
use std::time::Duration;

use faults::{Book, Fault};
use lab::kit::TestNamespace;
use serde_json::Value;

use crate::Outcome;
use crate::scenarios::Scenario;
use crate::world::{World, lab, panics};

/// A step begins and ends at rest: whatever happens in it is over when the next one begins.
pub struct Step {
    /// What was there at its end.
    pub seen: Value,
    pub book: Book,
    pub took: Duration,
}

impl Step {
    pub fn made(&self) -> &BTreeMap<String, usize> {
        self.book.made()
    }

    pub fn requests(&self) -> usize {
        self.book.requests().len()
    }
}

/// `faults` are those of the steps, in order; the steps that are left have none.
pub async fn live(name: &str, scenario: Scenario, faults: &[Fault]) -> Outcome<Vec<Step>> {
    let before = panics();
    let test = TestNamespace::new(lab().await, name).await?;
    let mut steps = None;
    test.run(async |test| -> Outcome {
        let world = World::new(test, faults, Duration::ZERO)?;
        let lived = world.operated(scenario(&world)).await;
        lived.map_err(|error| format!("step {}: {error}", world.step()))?;
        steps = Some(world.into_steps());
        Ok(())
    })
    .await?;
    if panics() != before {
        return Err("something panicked".into());
    }
    steps.ok_or_else(|| "the life did not end".into())
}
