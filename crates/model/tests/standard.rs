//! The checker's standard bounds: every question, answered in full.

use model::questions::{self, Bounds};

#[test]
fn no_law_is_broken_and_the_end_is_the_spec() {
    let mut states = 0;
    for question in questions::all(Bounds::Standard) {
        let answer = question.ask(2, None);
        println!("{answer}");
        assert!(answer.violation.is_none(), "{answer}");
        states += answer.states;
    }
    println!("{states} distinct states in all");
}
