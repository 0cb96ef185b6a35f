//! The images that the lab knows how to make.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::{At, Image, ImageError, Layer, Reference};
use crate::programs::{EtcdVersion, Program, Programs};

/// An image of other people's programs, made from what we build and what Debian has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// Holds a pod's namespaces; imported into each node, since it must be there before anything can be pulled.
    Pause,
    Busybox,
    CoreDns,
    LocalPath,
    Etcd(EtcdVersion),
    /// `latest`.
    DebianNginx,
    /// Newer, so that a rollout has somewhere to go.
    Nginx,
}

impl Recipe {
    /// What a lab's registry holds from the start, with these etcd versions.
    pub fn standard(etcd: &[EtcdVersion]) -> Vec<Self> {
        let mut all = vec![Self::Busybox, Self::CoreDns, Self::LocalPath, Self::DebianNginx, Self::Nginx];
        all.extend(etcd.iter().copied().map(Self::Etcd));
        all
    }

    /// The programs of ours in it.
    pub fn programs(self) -> Vec<Program> {
        match self {
            Self::Pause => vec![Program::Pause],
            Self::CoreDns => vec![Program::CoreDns],
            Self::LocalPath => vec![Program::LocalPathProvisioner],
            Self::Etcd(version) => version.programs(),
            Self::Nginx => vec![Program::Nginx],
            Self::Busybox | Self::DebianNginx => Vec::new(),
        }
    }

    /// The image, its programs built if they are missing.
    pub fn image(self, programs: &Programs) -> Result<Image, ImageError> {
        match self {
            Self::Pause => {
                let layer = Layer::default().program("/pause", programs.path(Program::Pause)?);
                Ok(Image::new(names(&["lab/pause:1"])?, vec![layer])
                    .entrypoint(&["/pause"])
                    .user("65535:65535"))
            }
            Self::Busybox => {
                let layers = vec![base(), busybox()?];
                Ok(Image::new(names(&["busybox:1.28.0-glibc"])?, layers).command(&["sh"]))
            }
            Self::CoreDns => {
                let layer = Layer::default().program("/coredns", programs.path(Program::CoreDns)?);
                Ok(Image::new(names(&["lab/coredns:1"])?, vec![base(), layer]).entrypoint(&["/coredns"]))
            }
            Self::LocalPath => {
                let program = "/local-path-provisioner";
                let layer = Layer::default().program(program, programs.path(Program::LocalPathProvisioner)?);
                Ok(Image::new(names(&["lab/local-path:1"])?, vec![base(), layer]).entrypoint(&[program]))
            }
            Self::Etcd(version) => etcd(programs, version),
            Self::DebianNginx => nginx(Path::new("/usr/sbin/nginx"), &["nginx:latest"]),
            Self::Nginx => nginx(&programs.path(Program::Nginx)?, &[]),
        }
    }
}

/// As the real images are: a shell and tools up to 3.4, and nothing but etcd from 3.5 on.
fn etcd(programs: &Programs, version: EtcdVersion) -> Result<Image, ImageError> {
    let mut layers = vec![base()];
    if version <= EtcdVersion::V3_4_15 {
        layers.push(busybox()?);
    }
    let mut layer = Layer::default().folder("/var/etcd", 0o755).folder("/var/lib/etcd", 0o755);
    for program in version.programs() {
        layer = layer.program(&format!("/usr/local/bin/{}", program.file_name()), programs.path(program)?);
    }
    layers.push(layer);
    let mut tags = vec![format!("quay.io/coreos/etcd:v{version}")];
    if version == EtcdVersion::V3_3_12 {
        tags.push("quay.io/coreos/etcd:latest".to_owned());
    }
    if version >= EtcdVersion::V3_4_15 {
        tags.push(format!("gcr.io/etcd-development/etcd:v{version}"));
    }
    let image = Image::new(names(&tags)?, layers);
    Ok(image.command(&["/usr/local/bin/etcd"]))
}

/// nginx under its version, and under `more` tags.
fn nginx(program: &Path, more: &[&str]) -> Result<Image, ImageError> {
    const CONFIGURATION: &str = "\
user nginx;
worker_processes auto;
error_log /var/log/nginx/error.log notice;
pid /run/nginx.pid;
events {
    worker_connections 1024;
}
http {
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
    access_log /var/log/nginx/access.log;
    sendfile on;
    include /etc/nginx/conf.d/*.conf;
}
";
    const SITE: &str = "\
server {
    listen 80;
    location / {
        root /usr/share/nginx/html;
        index index.html;
    }
}
";
    // nginx prints this on stderr.
    let printed = run(Command::new(program).arg("-v"))?.1;
    let version = printed.trim().rsplit('/').next().unwrap_or_default();
    let mut tags = vec![format!("nginx:{version}")];
    tags.extend(more.iter().map(ToString::to_string));
    let files = with_libraries(Layer::default().program("/usr/sbin/nginx", program), program)?
        .text("/etc/nginx/nginx.conf", CONFIGURATION)
        .text("/etc/nginx/conf.d/default.conf", SITE)
        .file("/etc/nginx/mime.types", 0o644, "/etc/nginx/mime.types")
        .link("/var/log/nginx/access.log", "/dev/stdout")
        .link("/var/log/nginx/error.log", "/dev/stderr")
        .folder("/var/lib/nginx", 0o755)
        .text("/usr/share/nginx/html/index.html", "<h1>Welcome to nginx!</h1>\n");
    let image = Image::new(names(&tags)?, vec![base(), busybox()?, files]);
    let mut image = image.command(&["nginx", "-g", "daemon off;"]);
    // As in the real image: finish what is being served, then end.
    image.stop_signal = Some("SIGQUIT".to_owned());
    Ok(image)
}

/// Our etcd operator, under the names of its releases and those that the book deploys: one program behind three commands.
pub fn etcd_operator(binary: &Path) -> Result<Image, ImageError> {
    let tags = [concat!("v", env!("CARGO_PKG_VERSION")), "v0.9.4", "v0.9.2", "latest"]
        .map(|tag| format!("quay.io/coreos/etcd-operator:{tag}"));
    own_program(names(&tags)?, binary, &["etcd-operator", "etcd-backup-operator", "etcd-restore-operator"])
}

/// Our nginx operator, under the name of each of its releases.
pub fn nginx_operator(binary: &Path) -> Result<Image, ImageError> {
    own_program(names(&["nginx-operator:0.1.0", "nginx-operator:0.2.0"])?, binary, &["nginx-operator"])
}

/// The image of a program, told by the name of its file.
pub fn of_binary(binary: &Path) -> Result<Image, ImageError> {
    match binary.file_name().and_then(|name| name.to_str()) {
        Some("etcd-operator") => etcd_operator(binary),
        Some("nginx-operator") => nginx_operator(binary),
        Some(name) => program(name, binary),
        None => Err(ImageError::Reference(binary.display().to_string())),
    }
}

/// Any other program, under its own name.
pub fn program(name: &str, binary: &Path) -> Result<Image, ImageError> {
    own_program(names(&[format!("{name}:latest")])?, binary, &[name])
}

/// A program of ours with the libraries it needs, to be run as nobody in particular. The first command is the
/// program, the others are links to it.
pub fn own_program(names: Vec<Reference>, binary: &Path, commands: &[&str]) -> Result<Image, ImageError> {
    let binary = std::path::absolute(binary).at(binary)?;
    let path = |command: &str| format!("/usr/local/bin/{command}");
    let mut commands = commands.iter();
    let first = path(commands.next().unwrap_or(&"program"));
    let mut layer = Layer::default().program(&first, &binary);
    for command in commands {
        layer = layer.link(&path(command), &first);
    }
    let libraries = with_libraries(Layer::default(), &binary)?;
    Ok(Image::new(names, vec![base(), libraries, layer]).command(&[&first]).user("65532:65532"))
}

/// What even an image without a shell has.
fn base() -> Layer {
    Layer::default()
        .text(
            "/etc/passwd",
            "root:x:0:0:root:/root:/bin/sh\nnginx:x:101:101::/nonexistent:/bin/false\n\
             nobody:x:65534:65534:nobody:/nonexistent:/bin/false\nnonroot:x:65532:65532:nonroot:/home/nonroot:/bin/false\n",
        )
        .text("/etc/group", "root:x:0:\nnginx:x:101:\nnobody:x:65534:\nnonroot:x:65532:\n")
        .text("/etc/nsswitch.conf", "hosts: files dns\n")
        .file("/etc/ssl/certs/ca-certificates.crt", 0o644, "/etc/ssl/certs/ca-certificates.crt")
        .folder("/root", 0o700)
        .folder("/run", 0o755)
        .folder("/tmp", 0o1777)
        .folder("/var/tmp", 0o1777)
}

/// A shell and the usual tools: Debian's static busybox, under every name that it answers to.
fn busybox() -> Result<Layer, ImageError> {
    const PROGRAM: &str = "/bin/busybox";
    let mut layer = Layer::default().program(PROGRAM, PROGRAM);
    for applet in run(Command::new(PROGRAM).arg("--list-full"))?.0.lines() {
        let path = format!("/{applet}");
        if path != PROGRAM {
            layer = layer.link(&path, PROGRAM);
        }
    }
    Ok(layer)
}

/// Adds the loader and the libraries that a dynamic program names, at the places where it looks for them.
fn with_libraries(mut layer: Layer, program: &Path) -> Result<Layer, ImageError> {
    for line in run(Command::new("ldd").arg(program))?.0.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let library = match words[..] {
            [_, "=>", "not", ..] => {
                let output = format!("{} is not there", words[0]);
                return Err(ImageError::Command { command: format!("ldd {}", program.display()), output });
            }
            [_, "=>", library, ..] => library,
            [loader, _] if loader.starts_with('/') => loader,
            _ => continue,
        };
        layer = layer.program(library, PathBuf::from(library));
    }
    Ok(layer)
}

fn run(command: &mut Command) -> Result<(String, String), ImageError> {
    let program = PathBuf::from(command.get_program());
    let done = command.output().at(&program)?;
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    // ldd calls a static program a failure, and it has no libraries to add.
    if !done.status.success() && !err.contains("not a dynamic executable") {
        return Err(ImageError::Command { command: format!("{command:?}"), output: err.trim().to_owned() });
    }
    Ok((out.into_owned(), err.into_owned()))
}

fn names<S: AsRef<str>>(texts: &[S]) -> Result<Vec<Reference>, ImageError> {
    texts.iter().map(|text| text.as_ref().parse()).collect()
}
