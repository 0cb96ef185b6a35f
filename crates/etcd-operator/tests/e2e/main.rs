//! The operator on the lab: real kubelets, real etcd, and clients that write and read all the time.

mod life;
mod support;
