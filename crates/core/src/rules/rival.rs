//! The operator that made the pods still runs: two that heal and scale the same members would undo each other's work.

use super::Decision;
use crate::view::View;

pub fn rival(view: &View) -> Option<Decision> {
    let rival = view.seen.rival.as_ref()?;
    Decision::stuck(format!("the pods of this cluster were made by another operator, and {rival}"))
}

#[cfg(test)]
mod tests {
    use super::super::scene::healthy;
    use super::*;

    #[test]
    fn nothing_is_done_beside_another_operator() {
        let mut scene = healthy("abc");
        assert_eq!(scene.ask(rival), "-");
        scene.seen.rival = Some("it still runs: stop it".to_owned());
        assert_eq!(scene.ask(rival), "stuck");
    }
}
