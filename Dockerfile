# The etcd operator, for any registry: docker build -t REGISTRY/etcd-operator:VERSION .
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --locked --release --package etcd-operator && cp target/release/etcd-operator /etcd-operator

# The C library and nothing else: no shell, no root.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /etcd-operator /usr/local/bin/etcd-operator
CMD ["/usr/local/bin/etcd-operator"]
