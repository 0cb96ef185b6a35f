//! Types of every custom resource, their CRDs, names, labels and annotations.
//!
//! Each kind of name that others may rely on lives in one module: [`labels`], [`annotations`] and [`names`]. The CRDs in
//! `deploy/crds` are made from the types by `make generate`.

#![allow(clippy::duplicated_attributes, reason = "two printer columns may be of one type")]

pub mod annotations;
pub mod conditions;
pub mod crd;
pub mod labels;
pub mod names;
pub mod nginx;
pub mod v1beta2;

pub use v1beta2::{
    EtcdBackup, EtcdBackupSpec, EtcdBackupStatus, EtcdCluster, EtcdClusterSpec, EtcdClusterStatus,
    EtcdRestore, EtcdRestoreSpec, EtcdRestoreStatus,
};

/// API group of the etcd resources, as coreos named it; also the prefix of our own labels and annotations.
pub const GROUP: &str = "etcd.database.coreos.com";
