//! nginx, newer than Debian's: from its source, which comes as a crate.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    BuildError,
    build::{copy_files, fetch, output, run},
    program::Program,
};

const CRATE: &str = "nginx-src";

/// Paths as Debian's nginx has them, so that both fit one image. Stripped, since the path of the build is in the symbols.
pub(super) const FLAGS: [&str; 13] = [
    "--prefix=/usr/share/nginx",
    "--conf-path=/etc/nginx/nginx.conf",
    "--pid-path=/run/nginx.pid",
    "--error-log-path=stderr",
    "--http-log-path=/var/log/nginx/access.log",
    "--http-client-body-temp-path=/var/lib/nginx/body",
    "--http-proxy-temp-path=/var/lib/nginx/proxy",
    "--http-fastcgi-temp-path=/var/lib/nginx/fastcgi",
    "--http-uwsgi-temp-path=/var/lib/nginx/uwsgi",
    "--http-scgi-temp-path=/var/lib/nginx/scgi",
    "--with-http_ssl_module",
    "--with-http_v2_module",
    "--with-ld-opt=-s",
];

/// Builds it into the folder `out`; `package` is the folder whose Cargo.lock pins the source.
pub(super) fn build(package: &Path, out: &Path) -> Result<(), BuildError> {
    let source = out.join("source");
    copy_files(&fetch_source(package)?, &source)?;
    let mut configure = in_folder("sh", &source);
    configure.arg("auto/configure").args(FLAGS);
    run(Program::Nginx, &mut configure)?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    run(Program::Nginx, in_folder("make", &source).arg(format!("-j{jobs}")))?;
    fs::rename(source.join("objs/nginx"), out.join(Program::Nginx.file_name()))?;
    Ok(fs::remove_dir_all(source)?)
}

/// Where cargo has the source, whose checksum it compares when it downloads it.
fn fetch_source(package: &Path) -> Result<PathBuf, BuildError> {
    let cargo = |words: &[&str]| {
        let mut cargo = in_folder("cargo", package);
        cargo.args(words);
        cargo
    };
    fetch(Program::Nginx, || Ok(cargo(&["fetch", "--locked", "--target", "host-tuple"])))?;
    let words = ["metadata", "--locked", "--offline", "--format-version=1", "--filter-platform=host-tuple"];
    let printed = output(&mut cargo(&words), "cargo")?;
    let unknown = |why: String| BuildError::Tool { tool: "cargo", output: why };
    let metadata: serde_json::Value =
        serde_json::from_slice(&printed).map_err(|error| unknown(error.to_string()))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let found = packages.filter(|package| package["name"] == CRATE).find_map(|package| {
        let manifest = Path::new(package["manifest_path"].as_str()?);
        Some(manifest.parent()?.join("nginx"))
    });
    found.ok_or_else(|| unknown(format!("{CRATE} is not in {}", package.join("Cargo.lock").display())))
}

/// A command that is ended when we are.
fn in_folder(command: &str, folder: &Path) -> Command {
    let mut prepared = Command::new("setpriv");
    prepared.args(["--pdeathsig", "TERM", "--", command]).current_dir(folder);
    prepared
}
