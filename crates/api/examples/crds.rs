//! Writes the CRDs where they belong in the repository: `cargo run -p api --example crds -- REPOSITORY`.

use std::{error::Error, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let root = std::env::args().nth(1).ok_or("name the root of the repository, such as .")?;
    for (path, crd) in api::crd::files() {
        let path = Path::new(&root).join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, serde_saphyr::to_string(&crd)?)?;
        println!("{}", path.display());
    }
    Ok(())
}
