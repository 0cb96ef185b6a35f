//! Real Kubernetes on one machine, and the hands that break it.

pub mod programs;
