//! The etcd operator: controllers for clusters, backups and restores.
