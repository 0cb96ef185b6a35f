//! A real S3 server over a folder, on a loopback address.

use super::{SOON, program};
use lab::programs::Program;
use snapshot::store::Secret;
use snapshot::{Place, StoreSource, store};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const BUCKET: &str = "mybucket";

pub struct S3 {
    folder: TempDir,
    address: String,
    child: Option<Child>,
}

impl S3 {
    pub fn start() -> Self {
        let folder = TempDir::new().unwrap();
        std::fs::create_dir(folder.path().join(BUCKET)).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut this = Self { folder, address, child: None };
        this.resume();
        this
    }

    pub fn resume(&mut self) {
        let child = Command::new(program(Program::Versitygw))
            .args(["--access=ID", "--secret=KEY"])
            .arg(format!("--port={}", self.address))
            .args(["posix", &self.folder.path().display().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.child = Some(child.unwrap());
        let end = Instant::now() + SOON;
        while TcpStream::connect(&self.address).is_err() {
            assert!(Instant::now() < end, "the S3 server does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The secret as the book makes it.
    pub fn secret(&self) -> Secret {
        let credentials = "[default]\naws_access_key_id = ID\naws_secret_access_key = KEY\n";
        let config = format!("[default]\nregion = us-east-1\nendpoint_url = {}\n", self.endpoint());
        [("credentials", credentials.to_owned()), ("config", config)]
            .map(|(key, value)| (key.to_owned(), value.into_bytes()))
            .into()
    }

    pub fn place(&self, path: &str) -> Place {
        store::open(&source(path), &self.secret()).unwrap()
    }

    /// Everything that the server keeps below its bucket, parts of uploads included.
    pub fn files(&self) -> Vec<String> {
        let (mut folders, mut files) = (vec![self.folder.path().join(BUCKET)], Vec::new());
        while let Some(folder) = folders.pop() {
            let Ok(entries) = folder.read_dir() else { continue };
            for path in entries.map(|entry| entry.unwrap().path()) {
                if path.is_dir() { folders.push(path) } else { files.push(self.relative(path)) }
            }
        }
        files.sort();
        files
    }

    /// Waits until what is on its way has landed: nothing comes or goes for a second.
    pub async fn comes_to_rest(&self) {
        let (mut seen, mut since) = (self.files(), Instant::now());
        let deadline = since + SOON;
        while since.elapsed() < Duration::from_secs(1) {
            assert!(Instant::now() < deadline, "{seen:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
            let now = self.files();
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
    }

    fn relative(&self, path: PathBuf) -> String {
        path.strip_prefix(self.folder.path().join(BUCKET)).unwrap().display().to_string()
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.kill();
    }
}

pub fn source(path: &str) -> StoreSource {
    StoreSource::S3 {
        path: path.into(),
        endpoint: None,
        force_path_style: false,
        profile: None,
        region: None,
    }
}
