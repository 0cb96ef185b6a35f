# need COMMAND PACKAGE…: installs Debian's packages, unless the command is there.
need() {
  command -v "$1" >/dev/null || { apt-get update -q && apt-get install -y -q --no-install-recommends "${@:2}"; }
}
# Rust needs a linker and C's headers; whatever else a lab needs, it installs itself.
need cc gcc libc6-dev
# Its linter and formatter, which a minimal toolchain is without. Where there is no rustup, cargo says what is missing.
if ! cargo clippy --version >/dev/null 2>&1 || ! cargo fmt --version >/dev/null 2>&1; then
  rustup component add clippy rustfmt || true
fi
