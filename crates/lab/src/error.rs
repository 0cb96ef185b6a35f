//! What can go wrong in the lab, told apart by whose move it is next.

use std::path::{Path, PathBuf};

use crate::images::ImageError;
use crate::packages::PackageError;
use crate::programs::BuildError;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller asked for something that cannot be: one line, exit code 2.
    #[error("{0}")]
    Usage(String),

    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },

    #[error("`{command}` failed: {message}")]
    Command { command: String, message: String },

    #[error("{what} was not there after {seconds} s: {last}")]
    Deadline { what: String, seconds: u64, last: String },

    #[error("{what} ended right after its start; the end of its log, {}:\n{tail}", log.display())]
    Died { what: String, log: PathBuf, tail: String },

    #[error("{what}: {message}")]
    Other { what: String, message: String },

    #[error(transparent)]
    Build(#[from] BuildError),

    #[error(transparent)]
    Image(#[from] ImageError),

    #[error(transparent)]
    Packages(#[from] PackageError),

    #[error("Kubernetes API: {0}")]
    Kube(#[from] Box<kube::Error>),
}

impl Error {
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    pub fn other(what: impl Into<String>, message: impl std::fmt::Display) -> Self {
        Self::Other { what: what.into(), message: message.to_string() }
    }

    pub fn exit_code(&self) -> u8 {
        if matches!(self, Self::Usage(_)) { 2 } else { 1 }
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Kube(Box::new(error))
    }
}

/// Adds the path to an I/O error, which on its own never says which file it was.
pub trait At<T> {
    fn at(self, path: impl AsRef<Path>) -> Result<T>;
}

impl<T> At<T> for std::io::Result<T> {
    fn at(self, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|source| Error::Io { path: path.as_ref().to_owned(), source })
    }
}
