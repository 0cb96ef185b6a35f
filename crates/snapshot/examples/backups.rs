//! Backups measured beside etcd's own tools, in the same run: `backups --operator target/release/etcd-operator [MIB]`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a measurement that fails is none")]

use etcd::kv::{TxnRequest, put_op};
use etcd::process::{Bootstrap, Place};
use futures::{StreamExt, stream};
use lab::programs::{EtcdVersion, Program, Programs, default_cache};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const VERSION: EtcdVersion = EtcdVersion::V3_6_16;
const VALUE: usize = 8 << 10;
const PER_WRITE: usize = 64;
const RUNS: usize = 3;
/// The most memory that a backup may take beyond what the same command takes for almost nothing.
const MEMORY: f64 = 32.0;

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let operator = args.iter().position(|arg| arg == "--operator").and_then(|at| args.get(at + 1));
    let operator = PathBuf::from(operator.map_or("target/release/etcd-operator", String::as_str));
    let mib = args.iter().rev().find_map(|arg| arg.parse().ok()).unwrap_or(1024);
    let bench = Bench::start(operator, mib).await;
    if bench.run() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

struct Bench {
    operator: PathBuf,
    folder: TempDir,
    /// With this much data, and with next to none.
    full: Place,
    empty: Place,
    s3: S3,
}

impl Bench {
    async fn start(operator: PathBuf, mib: usize) -> Self {
        let (full, empty) = (etcd("full").await, etcd("empty").await);
        let member = full.member().unwrap().with_deadline(Duration::from_mins(1));
        eprintln!("filling etcd {VERSION} with {mib} MiB");
        stream::iter(0..(mib << 20) / VALUE / PER_WRITE)
            .for_each_concurrent(4, async |write| {
                let puts = (0..PER_WRITE).map(|number| {
                    let mut value = vec![0; VALUE];
                    rand::fill(&mut value[..]);
                    put_op(format!("/bench/{write}/{number}"), value)
                });
                member.txn(TxnRequest { success: puts.collect(), ..Default::default() }).await.unwrap();
            })
            .await;
        Self { operator, folder: TempDir::new().unwrap(), full, empty, s3: S3::start() }
    }

    fn run(&self) -> bool {
        let file = self.folder.path().join("etcdctl.db");
        let volume =
            format!(r#"{{"type":"volume","root":"{}","path":"ours"}}"#, self.folder.path().display());
        let s3 = format!(r#"{{"type":"s3","path":"bench/ours","endpoint":"{}"}}"#, self.s3.url);
        let (mut theirs, mut ours, mut theirs_s3, mut ours_s3) = (vec![], vec![], vec![], vec![]);
        let (mut status, mut inspect) = (vec![], vec![]);
        let (mut memory, mut memory_s3, mut memory_inspect) = (0.0_f64, 0.0_f64, 0.0_f64);
        // In turn, so that whatever else the machine does falls on both.
        for _ in 0..RUNS {
            drop(fs::remove_file(&file));
            let saved = measure(
                Command::new(program(Program::Etcdctl(VERSION)))
                    .arg(format!("--endpoints={}", self.full.client()))
                    .args(["--command-timeout=10m", "snapshot", "save"])
                    .arg(&file),
            )
            .seconds;
            theirs.push(saved);
            let mine = self.save(&self.full, &volume);
            ours.push(mine.seconds);
            memory = memory.max(mine.mebibytes);
            theirs_s3.push(saved + self.s3.upload(&file));
            let mine = self.save(&self.full, &s3);
            ours_s3.push(mine.seconds);
            memory_s3 = memory_s3.max(mine.mebibytes);
            status.push(
                measure(
                    Command::new(program(Program::Etcdutl(VERSION))).args(["snapshot", "status"]).arg(&file),
                )
                .seconds,
            );
            let mine = measure(Command::new(&self.operator).args(["snapshot", "inspect"]).arg(&file));
            inspect.push(mine.seconds);
            memory_inspect = memory_inspect.max(mine.mebibytes);
        }
        let size = fs::metadata(&file).unwrap().len() >> 20;
        let rest = [&volume, &s3].map(|source| self.save(&self.empty, source).mebibytes);
        // What was saved last is that of the empty one.
        let small = self.folder.path().join("ours");
        let rest_inspect =
            measure(Command::new(&self.operator).args(["snapshot", "inspect"]).arg(&small)).mebibytes;
        println!("a database of {size} MiB; medians of {RUNS}, runs in brackets");
        let met = [
            ratio("backup to a volume, throughput beside etcdctl snapshot save", &theirs, &ours, 0.8),
            ratio("backup to S3, throughput beside save, then upload", &theirs_s3, &ours_s3, 0.8),
            ratio("inspect, speed beside etcdutl snapshot status", &status, &inspect, 1.0),
            budget("memory of a backup to a volume, MiB beyond rest", memory - rest[0], rest[0]),
            budget("memory of a backup to S3, MiB beyond rest", memory_s3 - rest[1], rest[1]),
            budget("memory of inspect, MiB beyond rest", memory_inspect - rest_inspect, rest_inspect),
        ];
        met.into_iter().all(|met| met)
    }

    fn save(&self, from: &Place, source: &str) -> Measured {
        let mut command = Command::new(&self.operator);
        command.args(["snapshot", "save", "--endpoint", &from.client().to_string(), "--source", source]);
        command.arg("--secret-dir").arg(&self.s3.secret);
        measure(&mut command)
    }
}

fn program(program: Program) -> PathBuf {
    Programs::new(&default_cache().unwrap()).path(program).unwrap()
}

async fn etcd(name: &str) -> Place {
    let mut place = Place::new(name).unwrap();
    let bootstrap = Bootstrap::new_cluster([&place])
        .with_flag("--quota-backend-bytes=8589934592")
        .with_flag("--max-txn-ops=1024")
        .with_flag("--unsafe-no-fsync");
    place.start(&program(Program::Etcd(VERSION)), &bootstrap).unwrap();
    place.healthy(Duration::from_secs(30)).await.unwrap();
    place
}

struct Measured {
    seconds: f64,
    mebibytes: f64,
}

/// Runs a program to its end: how long it took, and the most memory it had.
fn measure(command: &mut Command) -> Measured {
    let started = Instant::now();
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut most = 0;
    loop {
        let ended = child.try_wait().unwrap();
        let now = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let peak =
            now.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
        most = most.max(peak.unwrap_or(0));
        if let Some(status) = ended {
            assert!(status.success(), "{command:?}");
            let mebibytes = f64::from(u32::try_from(most).unwrap()) / 1024.0;
            return Measured { seconds: started.elapsed().as_secs_f64(), mebibytes };
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn median(runs: &[f64]) -> f64 {
    let mut sorted = runs.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn ratio(what: &str, theirs: &[f64], ours: &[f64], least: f64) -> bool {
    let found = median(theirs) / median(ours);
    let verdict = if found >= least { "met" } else { "MISSED" };
    println!("{what}: {found:.2} (at least {least}: {verdict}); theirs {theirs:.2?} s, ours {ours:.2?} s");
    found >= least
}

fn budget(what: &str, found: f64, rest: f64) -> bool {
    let verdict = if found <= MEMORY { "met" } else { "MISSED" };
    println!("{what}: {found:.1} (at most {MEMORY}: {verdict}); at rest {rest:.1}");
    found <= MEMORY
}

struct S3 {
    child: Child,
    url: String,
    secret: PathBuf,
    _folder: TempDir,
}

impl S3 {
    fn start() -> Self {
        let folder = TempDir::new().unwrap();
        fs::create_dir_all(folder.path().join("data/bench")).unwrap();
        let secret = folder.path().join("secret");
        fs::create_dir(&secret).unwrap();
        fs::write(
            secret.join("credentials"),
            "[default]\naws_access_key_id = ID\naws_secret_access_key = KEY\n",
        )
        .unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = Command::new(program(Program::Versitygw))
            .args(["--access=ID", "--secret=KEY"])
            .arg(format!("--port={address}"))
            .arg("posix")
            .arg(folder.path().join("data"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let end = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < end, "the S3 server does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { child, url: format!("http://{address}"), secret, _folder: folder }
    }

    /// In parts of 8 MiB, ten at a time, as `aws s3 cp` does. To cut the file costs a tool nothing, so it is not counted.
    fn upload(&self, file: &Path) -> f64 {
        let folder = TempDir::new().unwrap();
        output(
            Command::new("split")
                .args(["--bytes=8M", "--suffix-length=4"])
                .arg(file)
                .arg(folder.path().join("p")),
        );
        let mut parts: Vec<_> = folder.path().read_dir().unwrap().map(|part| part.unwrap().path()).collect();
        parts.sort();

        let started = Instant::now();
        let url = format!("{}/bench/theirs", self.url);
        let begun = output(Self::curl().args(["--request", "POST"]).arg(format!("{url}?uploads=")));
        let (_, id) = begun.split_once("<UploadId>").unwrap();
        let (id, _) = id.split_once("</UploadId>").unwrap();
        let mut all = Self::curl();
        all.args(["--parallel", "--parallel-max", "10", "--write-out", "%{url} %header{etag}\n"]);
        for (part, number) in parts.iter().zip(1..) {
            all.arg("--upload-file").arg(part).arg(format!("{url}?partNumber={number}&uploadId={id}"));
        }
        let sent = output(&mut all);
        let mut tags: Vec<(usize, &str)> = sent
            .lines()
            .map(|line| {
                let (url, tag) = line.split_once(' ').unwrap();
                let (_, number) = url.split_once("partNumber=").unwrap();
                (number.split('&').next().unwrap().parse().unwrap(), tag)
            })
            .collect();
        tags.sort_unstable();
        let part = |(number, tag): &(usize, &str)| {
            format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>")
        };
        let list: String = tags.iter().map(part).collect();
        let list = format!("<CompleteMultipartUpload>{list}</CompleteMultipartUpload>");
        let done = output(Self::curl().args(["--data-binary", &list]).arg(format!("{url}?uploadId={id}")));
        assert!(done.contains("<ETag>"), "{done}");
        started.elapsed().as_secs_f64()
    }

    fn curl() -> Command {
        let mut curl = Command::new("curl");
        curl.args([
            "--fail",
            "--silent",
            "--show-error",
            "--header",
            "x-amz-content-sha256: UNSIGNED-PAYLOAD",
        ]);
        curl.args(["--aws-sigv4", "aws:amz:us-east-1:s3", "--user", "ID:KEY"]);
        curl
    }
}

/// What a program prints.
fn output(command: &mut Command) -> String {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

impl Drop for S3 {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
