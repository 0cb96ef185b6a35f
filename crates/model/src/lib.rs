//! The model checker: the real [`plan`](domain::plan()) in every world that a bounded number of troubles leads to.
//!
//! A [`Question`] is a world to start from and the troubles that may happen in it, at any moment and in any order. The
//! checker walks every world that can come of that, and asks of each: is no law broken, and if all troubles ended now,
//! would the end be what the spec says? A "no" is told as the shortest [`story`] that leads there.

mod act;
mod check;
mod goal;
pub mod questions;
mod shared;
mod story;

pub use act::Act;
pub use check::{Answer, Question};
