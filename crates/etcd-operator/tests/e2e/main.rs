//! The operator on the lab: real kubelets, real etcd, and clients that write and read all the time.

mod adopted;
mod backup;
mod chaos;
mod heal;
mod install;
mod life;
mod nodes;
mod one;
mod operator;
mod quorum;
mod restore;
mod rollout;
mod scale;
mod support;
mod tutorial;
mod upgrade;
