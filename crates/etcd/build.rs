//! Compiles etcd's protocol without `protoc`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["proto/rpc.proto"], ["proto"])?;
    // A snapshot passes through without being copied.
    tonic_prost_build::configure().bytes(".etcdserverpb.SnapshotResponse.blob").compile_fds(files)?;
    Ok(())
}
