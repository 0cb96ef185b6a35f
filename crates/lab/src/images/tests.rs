use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use sha2::{Digest, Sha256};

use super::*;
use crate::programs::{EtcdVersion, Program, Programs, default_cache};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn registry(&self) -> Registry {
        Registry::new(&self.at("registry"))
    }

    /// An image of every kind of content.
    fn image(&self, name: &str) -> Image {
        let file = self.at("file");
        if !file.exists() {
            fs::write(&file, "from the machine").unwrap();
        }
        let layer = Layer::default()
            .program("/usr/local/bin/tool", file)
            .text("/etc/motd", "hello")
            .link("/bin/sh", "/bin/busybox")
            .folder("/tmp", 0o1777)
            .text(&format!("/{}/deep", "long".repeat(40)), "long name");
        Image::new(vec![name.parse().unwrap()], vec![layer, Layer::default().text("/second", "layer")])
            .entrypoint(&["/usr/local/bin/tool"])
            .command(&["--help"])
            .user("1:1")
    }
}

#[test]
fn the_same_input_gives_the_same_digest() {
    let (one, two) = (Folder::new(), Folder::new());
    let digest = one.image("a:1").store(&one.registry()).unwrap();
    assert_eq!(two.image("a:1").store(&two.registry()).unwrap(), digest);
    fs::write(two.at("file"), "another file").unwrap();
    assert_ne!(two.image("a:1").store(&two.registry()).unwrap(), digest);
}

#[test]
fn a_layer_is_a_tar_that_tar_can_read() {
    let folder = Folder::new();
    let out = folder.at("layer.tar");
    folder.image("a:1").layers[0].write(File::create(&out).unwrap()).unwrap();
    let listed = Command::new("tar").args(["--numeric-owner", "--utc", "-tvf"]).arg(out).output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    for line in [
        "drwxr-xr-x 0/0               0 1970-01-01 00:00 usr/local/bin/",
        "-rwxr-xr-x 0/0              16 1970-01-01 00:00 usr/local/bin/tool",
        "-rw-r--r-- 0/0               5 1970-01-01 00:00 etc/motd",
        "lrwxrwxrwx 0/0               0 1970-01-01 00:00 bin/sh -> /bin/busybox",
        "drwxrwxrwt 0/0               0 1970-01-01 00:00 tmp/",
    ] {
        assert!(text.contains(line), "no line {line} in:\n{text}");
    }
    assert!(text.contains(&format!("{}/deep", "long".repeat(40))));
}

#[test]
fn an_archive_comes_back_as_it_went() {
    let folder = Folder::new();
    let image = folder.image("quay.io/some/image:v1");
    let images = Images::new(&folder.at("cache"));
    let archive = folder.at("image.tar");
    images.export(&image, &archive).unwrap();
    assert_eq!(load(&archive, &folder.registry()).unwrap(), image.names);
    images.publish(std::slice::from_ref(&image), &Registry::new(&folder.at("other"))).unwrap();
    let original = Registry::new(&folder.at("other")).resolve(&image.names[0]).unwrap();
    assert!(original.is_some());
    assert_eq!(folder.registry().resolve(&image.names[0]).unwrap(), original);

    let bytes = fs::read(&archive).unwrap();
    images.export(&image, &archive).unwrap();
    assert_eq!(fs::read(&archive).unwrap(), bytes);

    assert!(Command::new("gzip").arg(&archive).status().unwrap().success());
    let again = Registry::new(&folder.at("from-gzip"));
    load(&folder.at("image.tar.gz"), &again).unwrap();
    assert_eq!(again.resolve(&image.names[0]).unwrap(), original);
}

#[test]
fn a_docker_archive_is_understood() {
    let folder = Folder::new();
    let work = folder.at("docker");
    fs::create_dir_all(work.join("one")).unwrap();
    fs::create_dir_all(work.join("two")).unwrap();
    folder.image("a:1").layers[0].write(File::create(work.join("one/layer.tar")).unwrap()).unwrap();
    std::os::unix::fs::symlink("../one/layer.tar", work.join("two/layer.tar")).unwrap();
    fs::write(work.join("config.json"), "{}").unwrap();
    let manifest = r#"[{"Config":"config.json","RepoTags":["some/app:v2","app"],"Layers":["one/layer.tar","two/layer.tar"]}]"#;
    fs::write(work.join("manifest.json"), manifest).unwrap();
    let archive = folder.at("docker.tar");
    let packed = Command::new("tar").arg("-C").arg(&work).arg("-cf").arg(&archive).arg(".").status().unwrap();
    assert!(packed.success());

    let names: Vec<String> =
        load(&archive, &folder.registry()).unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["docker.io/some/app:v2", "docker.io/library/app:latest"]);
    let listed = folder.registry().list().unwrap();
    let shown: Vec<_> = listed.iter().map(|image| (image.repository.as_str(), image.tag.as_str())).collect();
    assert_eq!(shown, [("library/app", "latest"), ("some/app", "v2")]);
    assert_eq!(listed[0].size, 2 * fs::metadata(work.join("one/layer.tar")).unwrap().len());
}

#[test]
fn a_bad_archive_is_refused() {
    let folder = Folder::new();
    let archive = folder.at("bad.tar");
    folder.image("a:1").layers[0].write(File::create(&archive).unwrap()).unwrap();
    let error = load(&archive, &folder.registry()).unwrap_err().to_string();
    assert!(error.contains("neither manifest.json nor index.json"), "{error}");
    assert!(folder.registry().list().unwrap().is_empty());

    let image = folder.image("a:1");
    let images = Images::new(&folder.at("cache"));
    images.export(&image, &archive).unwrap();
    let mut bytes = fs::read(&archive).unwrap();
    let place = bytes.windows(16).position(|part| part == b"from the machine").unwrap();
    bytes[place] ^= 1;
    fs::write(&archive, bytes).unwrap();
    let error = load(&archive, &folder.registry()).unwrap_err().to_string();
    assert!(error.contains("is damaged"), "{error}");
    assert!(folder.registry().list().unwrap().is_empty());
}

#[test]
fn labs_share_blobs_and_only_changes_are_written() {
    let folder = Folder::new();
    let (image, images) = (folder.image("a:1"), Images::new(&folder.at("cache")));
    let (one, two) = (Registry::new(&folder.at("one")), Registry::new(&folder.at("two")));
    let blob_of = |registry: &Registry| {
        let digest = registry.resolve(&image.names[0]).unwrap().unwrap();
        let layer = registry.manifest(&digest).unwrap().layers.remove(0).digest;
        fs::metadata(registry.blob(&layer).unwrap()).unwrap()
    };
    images.publish(std::slice::from_ref(&image), &one).unwrap();
    let first = blob_of(&images.store);
    images.publish(std::slice::from_ref(&image), &two).unwrap();
    assert_eq!((blob_of(&one).ino(), blob_of(&two).ino()), (first.ino(), first.ino()));
    assert_eq!(blob_of(&images.store).nlink(), 3);

    // The program changes: labs that publish again get the new one, and the cache forgets the old one.
    let count = || walk(&folder.at("cache/images/docker/registry/v2/blobs")).len();
    let before = count();
    fs::write(folder.at("file"), "built anew").unwrap();
    images.publish(std::slice::from_ref(&image), &two).unwrap();
    assert_ne!(two.resolve(&image.names[0]).unwrap(), one.resolve(&image.names[0]).unwrap());
    assert_eq!(count(), before);
    assert_eq!(blob_of(&one).ino(), first.ino());
}

#[test]
fn labs_may_start_at_once() {
    let folder = Folder::new();
    folder.image("a:0");
    thread::scope(|scope| {
        for lab in 0..4 {
            let folder = &folder;
            scope.spawn(move || {
                let list: Vec<_> = (0..10).map(|n| folder.image(&format!("a:{n}"))).collect();
                let registry = Registry::new(&folder.at(&format!("lab{lab}")));
                Images::new(&folder.at("cache")).publish(&list, &registry).unwrap();
                assert_eq!(registry.list().unwrap().len(), 10);
            });
        }
    });
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(walk(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

/// Debian's docker-registry over a folder, on loopback, ended with the test.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start(folder: &Folder) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = folder.at("registry.yml");
        let text = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: '127.0.0.1:{port}'}}\nlog: {{level: error}}\n",
            folder.at("registry").display()
        );
        fs::write(&config, text).unwrap();
        let process = Command::new("docker-registry")
            .args([Path::new("serve"), &config])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { process, port };
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "docker-registry does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        server
    }

    fn get(&self, path: &str) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let accept = "application/vnd.oci.image.manifest.v1+json";
        write!(stream, "GET {path} HTTP/1.0\r\nHost: lab\r\nAccept: {accept}\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|part| part == b"\r\n\r\n").unwrap();
        (String::from_utf8(answer[..end].to_vec()).unwrap(), answer[end + 4..].to_vec())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[test]
fn a_real_registry_serves_what_we_wrote() {
    let folder = Folder::new();
    let server = Server::start(&folder);
    assert!(server.get("/v2/some/image/manifests/v1").0.starts_with("HTTP/1.0 404"));

    // Published while it runs, as `lab load` does.
    let image = folder.image("quay.io/some/image:v1");
    Images::new(&folder.at("cache")).publish(std::slice::from_ref(&image), &folder.registry()).unwrap();
    let (head, manifest) = server.get("/v2/some/image/manifests/v1?ns=quay.io");
    let digest = folder.registry().resolve(&image.names[0]).unwrap().unwrap();
    assert!(head.starts_with("HTTP/1.0 200") && head.contains(&digest), "{head}");
    assert_eq!(format!("sha256:{}", hex::encode(Sha256::digest(&manifest))), digest);
    assert_eq!(server.get(&format!("/v2/some/image/manifests/{digest}")).1, manifest);

    let parts: registry::Manifest = serde_json::from_slice(&manifest).unwrap();
    assert_eq!(parts.blobs().count(), 3);
    for blob in parts.blobs() {
        let (head, bytes) = server.get(&format!("/v2/some/image/blobs/{}", blob.digest));
        assert!(head.starts_with("HTTP/1.0 200"), "{head}");
        assert_eq!(format!("sha256:{}", hex::encode(Sha256::digest(&bytes))), blob.digest);
        assert_eq!(bytes.len() as u64, blob.size);
    }
    assert!(server.get("/v2/some/image/manifests/v2").0.starts_with("HTTP/1.0 404"));
    assert_eq!(server.get("/v2/_catalog").1, b"{\"repositories\":[\"some/image\"]}\n");
}

/// Unpacks an image's layers over each other.
fn unpack(registry: &Registry, name: &str, to: &Path) {
    let digest = registry.resolve(&name.parse().unwrap()).unwrap().expect(name);
    fs::create_dir(to).unwrap();
    for layer in registry.manifest(&digest).unwrap().layers {
        let tar = registry.blob(&layer.digest).unwrap();
        assert!(Command::new("tar").arg("-C").arg(to).arg("-xf").arg(tar).status().unwrap().success());
    }
}

#[test]
fn programs_run_in_their_images() {
    let folder = Folder::new();
    let programs = Programs::new(&default_cache().unwrap());
    let mut list: Vec<Image> = [
        Recipe::Busybox,
        Recipe::DebianNginx,
        Recipe::Nginx,
        Recipe::Etcd(EtcdVersion::V3_5_16),
        Recipe::Etcd(EtcdVersion::V3_3_12),
    ]
    .into_iter()
    .map(|recipe| recipe.image(&programs).unwrap())
    .collect();
    // A dynamic program of ours: this test itself.
    list.push(etcd_operator(&std::env::current_exe().unwrap()).unwrap());
    let registry = folder.registry();
    Images::new(&folder.at("cache")).publish(&list, &registry).unwrap();

    let runs = |root: &Path, words: &[&str]| {
        let done = Command::new("chroot").arg(root).args(words).output().unwrap();
        let text = [done.stdout, done.stderr].concat();
        (done.status.success(), String::from_utf8_lossy(&text).into_owned())
    };
    unpack(&registry, "busybox:1.28.0-glibc", &folder.at("busybox"));
    assert_eq!(
        runs(&folder.at("busybox"), &["/bin/sh", "-c", "echo hi | cat; id -un"]),
        (true, "hi\nroot\n".to_owned())
    );

    for (name, version) in
        [("nginx:latest", "1.22.1"), ("nginx:1.22.1", "1.22.1"), ("nginx:1.28.3", "1.28.3")]
    {
        let root = folder.at(&name.replace(':', "-"));
        unpack(&registry, name, &root);
        let said = runs(&root, &["/usr/sbin/nginx", "-v"]);
        assert_eq!(said, (true, format!("nginx version: nginx/{version}\n")));
    }

    unpack(&registry, "quay.io/coreos/etcd", &folder.at("old"));
    let (good, text) = runs(&folder.at("old"), &["/bin/sh", "-c", "etcd --version"]);
    assert!(good && text.contains("3.3.12"), "{text}");
    unpack(&registry, "gcr.io/etcd-development/etcd:v3.5.16", &folder.at("new"));
    let (good, text) = runs(&folder.at("new"), &["/usr/local/bin/etcdutl", "version"]);
    assert!(good && text.contains("3.5.16"), "{text}");
    assert!(!folder.at("new/bin/sh").exists());

    unpack(&registry, "quay.io/coreos/etcd-operator:v0.9.2", &folder.at("operator"));
    let (good, text) = runs(&folder.at("operator"), &["/usr/local/bin/etcd-backup-operator", "--list"]);
    assert!(good && text.contains("programs_run_in_their_images"), "{text}");
}

#[test]
fn a_recipe_builds_only_its_own_programs() {
    assert_eq!(Recipe::Etcd(EtcdVersion::V3_4_15).programs(), EtcdVersion::V3_4_15.programs());
    assert_eq!(Recipe::Pause.programs(), [Program::Pause]);
    let all: Vec<Program> = Recipe::standard(&[]).into_iter().flat_map(Recipe::programs).collect();
    assert_eq!(all, [Program::CoreDns, Program::LocalPathProvisioner, Program::Nginx]);
}
