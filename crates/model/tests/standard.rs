//! The checker's standard bounds: every question, answered in full.

use model::questions::{self, Bounds};

/// Who walks far less than there was to walk when this was written does not look any more.
const LEAST: usize = 1_500_000;

#[test]
fn no_law_is_broken_and_the_end_is_the_spec() {
    let mut states = 0;
    for question in questions::all(Bounds::Standard) {
        let answer = question.ask(2, None);
        println!("{answer}");
        assert!(answer.violation.is_none(), "{answer}");
        assert!(answer.whole, "{answer}");
        states += answer.states;
    }
    println!("{states} distinct states in all");
    assert!(states >= LEAST, "only {states} distinct states");
}
