//! Deleting, paused, or a spec that we may not act on: say so, touch nothing.

use super::Decision;
use crate::view::View;

pub const TLS_NOT_BUILT: &str =
    "spec.TLS is not supported yet, and a cluster that asks for it never runs without it: take spec.TLS out";

pub fn hands_off(view: &View) -> Option<Decision> {
    let spec = view.spec;
    if spec.deleting {
        return Decision::stuck("the cluster is being deleted");
    }
    if let Some(wrong) = refusal(view) {
        return Decision::stuck(wrong);
    }
    if spec.paused {
        return Decision::stuck("control is paused: set spec.paused to false to go on");
    }
    None
}

/// Why nothing may be touched under this spec.
pub fn refusal(view: &View) -> Option<String> {
    if view.spec.tls_requested {
        return Some(TLS_NOT_BUILT.to_owned());
    }
    view.spec.invalid.clone()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::scene::{Scene, healthy};
    use super::*;

    #[rstest]
    #[case::nothing(|_: &mut Scene| {}, "-")]
    #[case::deleting(|s: &mut Scene| s.spec.deleting = true, "stuck")]
    #[case::paused(|s: &mut Scene| s.spec.paused = true, "stuck")]
    #[case::tls(|s: &mut Scene| s.spec.tls_requested = true, "stuck")]
    #[case::invalid(|s: &mut Scene| s.spec.invalid = Some("size".into()), "stuck")]
    fn cases(#[case] change: fn(&mut Scene), #[case] says: &str) {
        let mut scene = healthy("abc");
        change(&mut scene);
        assert_eq!(scene.ask(hands_off), says);
    }
}
