//! Writes the manifests where they belong in the repository: `cargo run -p nginx-operator --example files -- .`

use std::error::Error;
use std::fs;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let root = std::env::args().nth(1).ok_or("name the root of the repository, such as .")?;
    for (path, text) in nginx_operator::manifests::files()? {
        let path = Path::new(&root).join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, text)?;
        println!("{}", path.display());
    }
    Ok(())
}
