//! Writes every file that is made where it belongs in the repository: `make generate`

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use clap::Parser;

/// Write every file that is made where it belongs in the repository
#[derive(Debug, Parser)]
struct Cli {
    /// The root of the repository, such as .
    root: PathBuf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let Cli { root } = Cli::parse();
    for (path, text) in manifests::files(&root)? {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_no_folder() {
        for arguments in [&["manifests", "--help"][..], &["manifests", "--halp"], &["manifests"]] {
            assert!(Cli::try_parse_from(arguments).is_err(), "{arguments:?}");
        }
    }
}
