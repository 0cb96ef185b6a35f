//! One entry of a content-keyed cache folder: complete or not there.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

/// Gives the folder `root/name`, made by `make` if it is missing.
///
/// `make` fills a folder that nobody else sees, which then takes its place in one step: whatever ends it
/// halfway leaves no entry. Builders of the same entry wait for each other; other entries are not held up.
pub fn entry<E: From<io::Error>>(
    root: &Path,
    name: &str,
    make: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<PathBuf, E> {
    let path = root.join(name);
    if path.exists() {
        return Ok(path);
    }
    let locks = root.join("locks");
    fs::create_dir_all(&locks)?;
    let lock = File::create(locks.join(name))?;
    lock.lock()?;
    if path.exists() {
        return Ok(path);
    }
    clear_up(root, &locks, name)?;
    let partial = tempfile::Builder::new().prefix(&format!(".{name}.")).tempdir_in(root)?;
    make(partial.path())?;
    fs::set_permissions(partial.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    fs::rename(partial.path(), &path)?;
    Ok(path)
}

/// Removes what builders that were killed have left: folders that bear an entry's name while nobody holds its lock.
fn clear_up(root: &Path, locks: &Path, held: &str) -> io::Result<()> {
    for found in fs::read_dir(root)? {
        let found = found?.file_name().to_string_lossy().into_owned();
        let Some((name, _)) = found.strip_prefix('.').and_then(|rest| rest.rsplit_once('.')) else {
            continue;
        };
        let lock = File::create(locks.join(name))?;
        if name == held || lock.try_lock().is_ok() {
            fs::remove_dir_all(root.join(&found))?;
        }
    }
    Ok(())
}
