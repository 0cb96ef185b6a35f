//! Which labs exist, and who may change one: a folder and a lock for each.

use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{At, Error, Result};
use crate::layout::{Layout, state_dir, state_root};
use crate::net;

/// Held while a lab is being changed; ends with the process that holds it, however that ends.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Only one command changes a lab at a time: the second is told who the first is.
    pub fn of_lab(name: &str) -> Result<Self> {
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            if let Some(lock) = Self::try_take(name)? {
                return Ok(lock);
            }
            let pid = fs::read_to_string(lock_path(name)).unwrap_or_default();
            // The children of one that was killed hold it a moment longer.
            let lives = Path::new("/proc").join(pid.trim()).exists();
            if lives || Instant::now() > end {
                let pid = pid.trim();
                return Err(Error::usage(format!(
                    "the name '{name}' is in use: process {pid} is changing that lab; wait for it"
                )));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn try_take(name: &str) -> Result<Option<Self>> {
        let path = lock_path(name);
        loop {
            let mut file = open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(source)) => return Err(Error::Io { path, source }),
            }
            if is_still(&file, &path) {
                file.set_len(0).at(&path)?;
                write!(file, "{}", std::process::id()).at(&path)?;
                return Ok(Some(Self { path, _file: file }));
            }
        }
    }

    /// Gives the lock up and leaves no trace of it.
    pub fn remove(self) {
        // Whoever waits for the file sees that it is gone, and makes a new one.
        let _ = fs::remove_file(&self.path);
        if let Ok(_numbering) = lock(&numbering()) {
            let _ = fs::remove_file(numbering());
        }
        let _ = fs::remove_dir(locks());
        let _ = fs::remove_dir(state_root());
    }
}

fn locks() -> PathBuf {
    state_root().join(".locks")
}

/// Held while a new lab gets its number.
fn numbering() -> PathBuf {
    locks().join(".number")
}

fn lock_path(name: &str) -> PathBuf {
    locks().join(name)
}

fn open(path: &Path) -> Result<File> {
    let folder = path.parent().unwrap_or(path);
    loop {
        fs::create_dir_all(folder).at(folder)?;
        match File::options().read(true).write(true).create(true).truncate(false).open(path) {
            // The last lab of the machine has just taken the folder along.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            other => return other.at(path),
        }
    }
}

/// Waits until the file of this name is ours. Only who has it may remove it.
fn lock(path: &Path) -> Result<File> {
    loop {
        let file = open(path)?;
        file.lock().at(path)?;
        if is_still(&file, path) {
            return Ok(file);
        }
    }
}

/// A lock on a file that was removed meanwhile locks nothing.
fn is_still(file: &File, path: &Path) -> bool {
    matches!((file.metadata(), fs::metadata(path)), (Ok(a), Ok(b)) if a.ino() == b.ino())
}

/// The lab of that name, if it was ever brought up.
pub fn load(name: &str) -> Result<Option<Layout>> {
    let path = state_dir(name).join("lab.json");
    match fs::read(&path) {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).map(Some).map_err(|e| Error::other(path.display().to_string(), e))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Io { path, source }),
    }
}

/// The lab of that name, or bad use.
pub fn existing(name: &str) -> Result<Layout> {
    load(name)?
        .ok_or_else(|| Error::usage(format!("there is no lab '{name}'; `lab up --name {name}` makes one")))
}

pub fn all() -> Result<Vec<Layout>> {
    let mut labs = Vec::new();
    for entry in fs::read_dir(state_root()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            labs.extend(load(&name)?);
        }
    }
    labs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(labs)
}

/// What is asked of a new lab.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub name: String,
    pub nodes: u8,
    pub controllers: bool,
    pub subnet: Option<u8>,
}

/// The lab as it was made, or a new one with a number of its own.
pub fn load_or_create(wanted: &Wanted) -> Result<Layout> {
    if let Some(found) = load(&wanted.name)? {
        if found.nodes != wanted.nodes || found.controllers != wanted.controllers {
            return Err(Error::usage(format!(
                "the name '{}' is in use by a lab with {} nodes; take another --name, or `lab down --name {0}` first",
                found.name, found.nodes
            )));
        }
        return Ok(found);
    }
    let stray = net::namespaces(&wanted.name);
    if !stray.is_empty() {
        return Err(Error::usage(format!(
            "the name '{}' is in use: network namespace {} exists without a lab; `lab down --name {0}` removes it",
            wanted.name, stray[0]
        )));
    }
    let _numbering = lock(&numbering())?;
    let taken: Vec<u8> = all()?.iter().map(|l| l.number).collect();
    let layout = Layout {
        name: wanted.name.clone(),
        number: net::free_number(wanted.subnet, &taken)?,
        nodes: wanted.nodes,
        controllers: wanted.controllers,
        root: state_dir(&wanted.name),
    };
    save(&layout)?;
    Ok(layout)
}

fn save(layout: &Layout) -> Result<()> {
    fs::create_dir_all(&layout.root).at(&layout.root)?;
    let (new, path) = (layout.root.join("lab.json.new"), layout.root.join("lab.json"));
    let bytes = serde_json::to_vec_pretty(layout).map_err(|e| Error::other("lab.json", e))?;
    fs::write(&new, bytes).at(&new)?;
    fs::rename(&new, &path).at(&path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_whose_file_was_removed_is_taken_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("locks/.number");
        let first = lock(&path).unwrap();
        let waiting = format!(":{} ", first.metadata().unwrap().ino());
        let waiting = || {
            let locks = fs::read_to_string("/proc/locks").unwrap();
            locks.lines().any(|line| line.contains("->") && line.contains(&waiting))
        };
        let second = std::thread::scope(|scope| {
            let second = scope.spawn(|| lock(&path).unwrap());
            let end = Instant::now() + Duration::from_secs(10);
            while !waiting() {
                assert!(Instant::now() < end, "nobody waits");
                std::thread::yield_now();
            }
            fs::remove_dir_all(path.parent().unwrap()).unwrap();
            drop(first);
            second.join().unwrap()
        });
        assert!(is_still(&second, &path));
        assert!(File::open(&path).unwrap().try_lock().is_err(), "it is ours alone");
    }
}
