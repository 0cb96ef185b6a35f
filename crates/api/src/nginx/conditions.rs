//! Types and reasons of an `NginxOperator`'s conditions. A type never changes its meaning.

/// The operator reconciles this object. False while its loop fails; the reason says at which step.
pub const READY: &str = "Ready";
/// The operand is healthy: every pod that it needs runs and answers. Unknown while it starts.
pub const OPERAND_READY: &str = "OperandReady";
/// A rollout is under way.
pub const PROGRESSING: &str = "Progressing";

/// Reasons, which are also those of the events that tell of a change.
pub mod reason {
    pub const RECONCILED: &str = "Reconciled";

    pub const ALL_REPLICAS_ANSWER: &str = "AllReplicasAnswer";
    pub const SCALED_TO_ZERO: &str = "ScaledToZero";
    pub const STARTING: &str = "Starting";
    pub const REPLICAS_MISSING: &str = "ReplicasMissing";
    pub const PODS_REFUSED: &str = "PodsRefused";
    pub const IMAGE_PULL_FAILED: &str = "ImagePullFailed";
    pub const CRASH_LOOP: &str = "CrashLoop";
    pub const CONTAINER_FAILED: &str = "ContainerFailed";
    pub const UNSCHEDULABLE: &str = "Unschedulable";

    pub const ROLLING_OUT: &str = "RollingOut";
    pub const ROLLED_OUT: &str = "RolledOut";
    pub const ROLLOUT_STALLED: &str = "RolloutStalled";

    /// Events only.
    pub const CREATED: &str = "Created";
    pub const UPDATED: &str = "Updated";
}
