# The etcd operator, for any registry, one program behind three commands: docker build -t REGISTRY/etcd-operator:VERSION .
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    RUSTFLAGS="-C force-unwind-tables=no" cargo build --locked --release --package etcd-operator && install -D -t /out target/release/etcd-operator && \
    ln -s etcd-operator /out/etcd-backup-operator && ln -s etcd-operator /out/etcd-restore-operator

# The C library and nothing else: no shell, no root.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /out/ /usr/local/bin/
CMD ["/usr/local/bin/etcd-operator"]
