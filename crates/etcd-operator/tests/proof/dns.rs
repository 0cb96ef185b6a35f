//! Names of members. A pod's address here is a function of its name, so that a server can answer for all of them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::OnceLock;

/// The loopback address of a host, one of a million that nobody else uses.
pub fn address(host: &str) -> Ipv4Addr {
    let mut hasher = DefaultHasher::new();
    host.trim_end_matches('.').hash(&mut hasher);
    let [a, b, c, ..] = hasher.finish().to_be_bytes();
    Ipv4Addr::new(127, 64 | (a & 0b1111), b, c.clamp(1, 254))
}

/// A `resolv.conf` that asks our server, which runs as long as this process.
pub fn resolver() -> &'static Path {
    static FILE: OnceLock<tempfile::NamedTempFile> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        let server = Ipv4Addr::new(127, 53, rand::random(), rand::random::<u8>().clamp(1, 254));
        let socket = UdpSocket::bind((server, 53)).unwrap();
        std::thread::spawn(move || serve(&socket));
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "nameserver {server}").unwrap();
        file
    });
    file.path()
}

fn serve(socket: &UdpSocket) {
    let mut buffer = [0; 1500];
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        if let Some(answer) = answer(&buffer[..length]) {
            // Whoever asked asks again.
            drop(socket.send_to(&answer, from));
        }
    }
}

/// The answer to a question for one name: its IPv4 address, no IPv6 address, or that there is no such name.
fn answer(question: &[u8]) -> Option<Vec<u8>> {
    const HEADER: usize = 12;
    const A: u16 = 1;
    const TTL: u32 = 1;
    let mut labels = Vec::new();
    let mut at = HEADER;
    while let length @ 1.. = usize::from(*question.get(at)?) {
        labels.push(String::from_utf8_lossy(question.get(at + 1..=at + length)?).into_owned());
        at += length + 1;
    }
    let end = at + 5;
    let kind = u16::from_be_bytes([*question.get(at + 1)?, *question.get(at + 2)?]);
    let known = labels.last().is_some_and(|last| last == "svc");
    let found = known && kind == A;
    let mut answer = question.get(..2)?.to_vec();
    // An answer, recursion available; 3 is "no such name". One question, and one answer or none.
    answer.extend([0x81, if known { 0x80 } else { 0x83 }, 0, 1, 0, u8::from(found), 0, 0, 0, 0]);
    answer.extend(question.get(HEADER..end)?);
    if found {
        // The name of the question, type A, class IN.
        answer.extend([0xc0, 0x0c, 0, 1, 0, 1]);
        answer.extend(TTL.to_be_bytes());
        answer.extend([0, 4]);
        answer.extend(address(&labels.join(".")).octets());
    }
    Some(answer)
}
