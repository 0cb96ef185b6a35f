//! Programs that the lab builds itself, once, into a cache outside the checkout.
//!
//! Everything here blocks, for minutes where Kubernetes is built for the first time: call it where that is fine.

mod build;
mod entry;
mod nginx;
mod program;
mod progress;
#[cfg(test)]
mod tests;
mod toolchain;

use std::{
    env, io,
    path::{Path, PathBuf},
    process::ExitStatus,
};

use build::Builder;
pub(crate) use entry::entry;
pub use program::{EtcdVersion, KUBERNETES_VERSION, Program, UnknownEtcdVersion};
use progress::Progress;
use toolchain::Toolchain;

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("{program} did not build ({status}); its last lines:\n{output}")]
    Failed { program: Program, status: ExitStatus, output: String },
    #[error("cannot start {command} ({source}): the lab needs gcc, make, cargo and util-linux")]
    NoCompiler { command: String, source: io::Error },
    #[error("there is no Go 1.26 or later here, and Go {version} cannot be fetched: {why}")]
    NoGo { version: &'static str, why: String },
    #[error("{tool} does not work: {output}")]
    Tool { tool: &'static str, output: String },
    #[error("{program}: {module} has no line to mend in {file}; its version in go.mod has changed")]
    NothingToMend { program: Program, module: &'static str, file: &'static str },
    #[error("etcd {0} has no etcdutl: it came with 3.5")]
    NoEtcdutl(EtcdVersion),
    #[error("no folder for the cache: set LAB_CACHE or HOME")]
    NoCacheFolder,
    #[error("cannot use the program cache: {0}")]
    Cache(#[from] io::Error),
}

/// The folder for everything that is built once: `LAB_CACHE`, or `etcd-operator-lab` in the user's cache folder.
pub fn default_cache() -> Result<PathBuf, BuildError> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("LAB_CACHE")
        .or_else(|| {
            let user = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
            Some(user.join("etcd-operator-lab"))
        })
        .ok_or(BuildError::NoCacheFolder)
}

/// The built programs.
pub struct Programs {
    root: PathBuf,
    builder: Builder,
}

impl Programs {
    /// Programs of this checkout, kept under `cache`.
    pub fn new(cache: &Path) -> Self {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab");
        Self::with_toolchain(cache, Toolchain::new(cache), &sources)
    }

    fn with_toolchain(cache: &Path, toolchain: Toolchain, sources: &Path) -> Self {
        Self { root: cache.join("programs"), builder: Builder::new(toolchain, sources, cache) }
    }

    /// The program's file, built if it is missing. Its folder holds nothing else, so it can go on `PATH`.
    pub fn path(&self, program: Program) -> Result<PathBuf, BuildError> {
        let recipe = program.recipe()?;
        let name = self.entry_name(program)?;
        let folder = entry(&self.root, &name, |out| self.builder.build(program, &recipe, out))?;
        Ok(folder.join(program.file_name()))
    }

    /// Whether the program is built already.
    pub fn is_built(&self, program: Program) -> Result<bool, BuildError> {
        Ok(self.root.join(self.entry_name(program)?).exists())
    }

    /// Builds those of `programs` that are missing, and shows it on stderr.
    pub fn ensure(&self, programs: &[Program]) -> Result<(), BuildError> {
        let mut missing = Vec::new();
        for &program in programs {
            if !missing.contains(&program) && !self.is_built(program)? {
                missing.push(program);
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let progress = Progress::new(missing.len());
        missing
            .into_iter()
            .try_for_each(|program| progress.step(&program.to_string(), || self.path(program).map(drop)))
    }

    fn entry_name(&self, program: Program) -> Result<String, BuildError> {
        let name = program.to_string().replace(' ', "-");
        Ok(format!("{name}-{}", self.builder.key(&program.recipe()?)?))
    }
}
