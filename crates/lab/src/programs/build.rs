//! Runs the compilers.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use sha2::{Digest, Sha256};

use super::{
    BuildError, entry, nginx,
    program::{GoBuild, Mend, Program, Recipe},
    toolchain::Toolchain,
};

/// A download is tried this often before it counts as failed.
const FETCH_ATTEMPTS: u32 = 3;

/// How many of a compiler's last lines an error shows.
const SHOWN_LINES: usize = 15;

/// The compilers, and the checkout's `lab` folder with what they compile.
pub(super) struct Builder {
    toolchain: Toolchain,
    sources: PathBuf,
    /// Where dependencies are kept that had to be changed.
    mended: PathBuf,
}

impl Builder {
    pub fn new(toolchain: Toolchain, sources: &Path, cache: &Path) -> Self {
        Self { toolchain, sources: sources.to_owned(), mended: cache.join("mended") }
    }

    /// What the built file depends on, in one hash: sources, flags and compiler.
    pub fn key(&self, recipe: &Recipe) -> Result<String, BuildError> {
        let mut hash = Sha256::new();
        let mut add = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        match recipe {
            Recipe::C { source } => {
                add(&gcc_version()?);
                add(&fs::read(self.c_source(source))?);
            }
            Recipe::Nginx => {
                add(&gcc_version()?);
                for flag in nginx::FLAGS {
                    add(flag.as_bytes());
                }
                add_files(&mut add, &self.nginx_package())?;
            }
            Recipe::Go(build) => {
                add(self.toolchain.go()?.version.as_bytes());
                add(build.package.as_bytes());
                for flag in flags(build) {
                    add(flag.as_bytes());
                }
                if let Some(mend) = &build.mend {
                    for part in [mend.module, mend.file, mend.from, mend.to] {
                        add(part.as_bytes());
                    }
                }
                add_files(&mut add, &self.module(build))?;
            }
        }
        Ok(hex::encode(&hash.finalize()[..8]))
    }

    /// Builds `program` into the folder `out`.
    pub fn build(&self, program: Program, recipe: &Recipe, out: &Path) -> Result<(), BuildError> {
        let target = out.join(program.file_name());
        match recipe {
            Recipe::C { source } => {
                let mut gcc = Command::new("gcc");
                gcc.args(["-Os", "-static", "-s", "-o"]).arg(&target).arg(self.c_source(source));
                run(program, &mut gcc)?;
            }
            Recipe::Nginx => nginx::build(&self.nginx_package(), out)?,
            Recipe::Go(build) => {
                let mended = build.mend.as_ref().map(|mend| self.mend(program, build, mend)).transpose()?;
                let prepare = |verb: &str| -> Result<Command, BuildError> {
                    let mut go = self.go_command(build, verb)?;
                    if let Some(mended) = &mended {
                        go.arg("-modfile").arg(mended.join("go.mod"));
                    }
                    Ok(go)
                };
                fetch(program, || {
                    let mut list = prepare("list")?;
                    list.args(["-deps", "-f", "", &build.package]);
                    Ok(list)
                })?;
                let mut go = prepare("build")?;
                // What a killed go leaves behind goes with the unfinished entry.
                go.env("GOTMPDIR", out);
                go.args(flags(build)).arg("-o").arg(&target).arg(&build.package);
                run(program, &mut go)?;
            }
        }
        // On disk before the entry takes its name, so that not even a power cut leaves half a program.
        Ok(fs::File::open(&target)?.sync_all()?)
    }

    /// A folder with a go.mod like ours, but for a dependency that is copied out of Go's module cache and mended.
    /// Kept, since its path ends up in the program, which should come out the same every time.
    fn mend(&self, program: Program, build: &GoBuild, mend: &Mend) -> Result<PathBuf, BuildError> {
        let module = self.module(build);
        let go_mod = fs::read_to_string(module.join("go.mod"))?;
        let key = hex::encode(&Sha256::digest(format!("{go_mod}{}{}", mend.from, mend.to))[..8]);
        let name = format!("{}-{key}", build.module);
        let copy = self.mended.join(&name).join("mended");
        entry(&self.mended, &name, |out| {
            fetch(program, || {
                let mut download = self.go_command(build, "mod")?;
                download.args(["download", mend.module]);
                Ok(download)
            })?;
            let mut list = self.go_command(build, "list")?;
            let found = output(list.args(["-m", "-f", "{{.Dir}}", mend.module]), "go")?;
            let original = PathBuf::from(String::from_utf8_lossy(&found).trim());
            copy_files(&original, &out.join("mended"))?;
            fs::write(out.join("mended/go.mod"), format!("module {}\n", mend.module))?;
            let file = out.join("mended").join(mend.file);
            let text = fs::read_to_string(&file)?;
            if !text.contains(mend.from) {
                return Err(BuildError::NothingToMend { program, module: mend.module, file: mend.file });
            }
            fs::write(&file, text.replace(mend.from, mend.to))?;
            let replaces = format!("{} => ", mend.module);
            let lines = go_mod.lines().map(|line| match line.split_once(&replaces) {
                Some((before, _)) => format!("{before}{replaces}{}\n", copy.display()),
                None => format!("{line}\n"),
            });
            fs::write(out.join("go.mod"), lines.collect::<String>())?;
            fs::copy(module.join("go.sum"), out.join("go.sum"))?;
            Ok(())
        })
    }

    /// A go command in the module's folder, untouched by the user's own Go settings, ended when we are.
    pub fn go_command(&self, build: &GoBuild, verb: &str) -> Result<Command, BuildError> {
        let mut go = Command::new("setpriv");
        go.args(["--pdeathsig", "TERM", "--"]).arg(&self.toolchain.go()?.command).arg(verb);
        go.current_dir(self.module(build));
        go.envs([("CGO_ENABLED", "0"), ("GOFLAGS", ""), ("GOWORK", "off"), ("GOTOOLCHAIN", "local")]);
        Ok(go)
    }

    fn module(&self, build: &GoBuild) -> PathBuf {
        self.sources.join("go").join(&build.module)
    }

    fn c_source(&self, source: &str) -> PathBuf {
        self.sources.join("images").join(source)
    }

    fn nginx_package(&self) -> PathBuf {
        self.sources.join("nginx")
    }
}

fn gcc_version() -> Result<Vec<u8>, BuildError> {
    output(Command::new("gcc").arg("-dumpfullversion"), "gcc")
}

/// Adds names and contents of all files under a folder to a hash.
fn add_files(add: &mut impl FnMut(&[u8]), folder: &Path) -> io::Result<()> {
    for file in files(folder)? {
        add(file.strip_prefix(folder).unwrap_or(&file).as_os_str().as_encoded_bytes());
        add(&fs::read(&file)?);
    }
    Ok(())
}

/// Downloads what the build needs, apart from the build itself, since only this step may fail by chance.
pub(super) fn fetch(
    program: Program,
    command: impl Fn() -> Result<Command, BuildError>,
) -> Result<(), BuildError> {
    let mut attempt = 1;
    loop {
        match run(program, &mut command()?) {
            Err(BuildError::Failed { .. }) if attempt < FETCH_ATTEMPTS => {
                thread::sleep(Duration::from_secs(u64::from(attempt)));
                attempt += 1;
            }
            result => return result,
        }
    }
}

fn flags(build: &GoBuild) -> [&str; 5] {
    ["-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags", &build.ldflags]
}

/// All files under a folder, sorted.
pub(super) fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for found in fs::read_dir(folder)? {
            let found = found?;
            if found.file_type()?.is_dir() { folders.push(found.path()) } else { files.push(found.path()) }
        }
    }
    files.sort();
    Ok(files)
}

pub(super) fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    for file in files(from)? {
        let target = to.join(file.strip_prefix(from).unwrap_or(&file));
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        // Not fs::copy: the module cache is read-only, and the copy must not be.
        fs::write(target, fs::read(&file)?)?;
    }
    Ok(())
}

pub(super) fn run(program: Program, command: &mut Command) -> Result<(), BuildError> {
    let done = command.output().map_err(|source| start_error(command, source))?;
    if done.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&done.stderr);
    let lines: Vec<&str> = text.lines().collect();
    let shown = lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n");
    Err(BuildError::Failed { program, status: done.status, output: shown })
}

pub(super) fn output(command: &mut Command, tool: &'static str) -> Result<Vec<u8>, BuildError> {
    let done = command.output().map_err(|source| start_error(command, source))?;
    if !done.status.success() {
        return Err(BuildError::Tool {
            tool,
            output: String::from_utf8_lossy(&done.stderr).trim().to_owned(),
        });
    }
    Ok(done.stdout)
}

fn start_error(command: &Command, source: io::Error) -> BuildError {
    BuildError::NoCompiler { command: command.get_program().to_string_lossy().into_owned(), source }
}
