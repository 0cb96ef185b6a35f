//! Writes the bundles and catalogs where they belong in the repository: `cargo run -p bundle -- .`

use std::error::Error;
use std::fs;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let root = std::env::args().nth(1).ok_or("name the root of the repository, such as .")?;
    let root = Path::new(&root);
    for (path, text) in bundle::files(root)? {
        let path = root.join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, text)?;
        println!("{}", path.display());
    }
    Ok(())
}
