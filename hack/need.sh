# need COMMAND PACKAGE…: installs Debian's packages, unless the command is there.
need() {
  command -v "$1" >/dev/null || { apt-get update -q && apt-get install -y -q --no-install-recommends "${@:2}"; }
}
# Rust needs a linker and C's headers; whatever else a lab needs, it installs itself.
need cc gcc libc6-dev
