//! Writes every file that is made where it belongs in the repository: `make generate`

use std::error::Error;
use std::fs;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let root = std::env::args().nth(1).ok_or("name the root of the repository, such as .")?;
    let root = Path::new(&root);
    for (path, text) in manifests::files(root)? {
        let path = root.join(path);
        if fs::read_to_string(&path).is_ok_and(|old| old == text) {
            continue;
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, text)?;
        println!("{}", path.display());
    }
    Ok(())
}
