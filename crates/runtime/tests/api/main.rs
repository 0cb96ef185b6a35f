//! The runtime against a real kube-apiserver.

mod client;
mod crd;
mod events;
mod lease;
mod rights;
mod server;
