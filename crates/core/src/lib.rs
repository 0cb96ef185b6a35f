//! The domain: membership, quorum, versions, the rules and [`plan`]. No kube, no tokio, no clock.
//!
//! The controller observes everything anew, calls [`plan`], applies the steps in order and writes the report.
//! The same function runs in production, in the property tests and under the model checker.

pub mod ids;
pub mod observation;
pub mod plan;
pub mod quorum;
pub mod report;
mod room;
mod rules;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
pub mod spec;
mod status;
pub mod step;
pub mod time;
pub mod version;
mod view;

pub use ids::{ClusterId, MemberId, Name, Uid};
pub use observation::{
    Alarm, AlarmKind, AskedBackup, Backups, Check, Claim, Failing, HashCheck, ImageCheck, Member, Node,
    NodeState, Observation, Pod, PodPhase, Read, Recorded, Restore, Rolled, Seed, Stage, Status,
};
pub use plan::{Plan, Rule, plan};
pub use report::{Condition, ConditionKind, Event, Phase, Report, Severity, Truth};
pub use spec::{Knobs, RestoreRequest, Spec, Storage};
pub use step::{Action, Peer, Step};
pub use time::Moment;
pub use version::{HopTable, Version};
pub use view::IMAGE_REASONS;
