//! One etcd member over gRPC.
