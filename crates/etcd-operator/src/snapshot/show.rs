//! What a snapshot holds, for people and for programs.

use api::v1beta2::BackupContents;
use snapshot::Contents;

pub fn json(contents: &Contents) -> String {
    serde_json::json!(contents).to_string()
}

/// What the status of an EtcdRestore says of it.
pub fn brief(contents: &Contents) -> String {
    let brief = BackupContents {
        etcd_version: contents.version.clone().unwrap_or_default(),
        revision: contents.revision,
        keys: i64::try_from(contents.keys).unwrap_or(i64::MAX),
        digest: contents.digest.clone(),
        size_bytes: i64::try_from(contents.size).unwrap_or(i64::MAX),
    };
    serde_json::json!(brief).to_string()
}

pub fn text(place: &str, contents: &Contents) -> String {
    let mut lines = vec![
        format!("{place} is whole"),
        format!("revision   {}", contents.revision),
        format!("keys       {} ({})", contents.keys, bytes(contents.live_bytes)),
        format!("changes    {}, compacted up to revision {}", contents.changes, contents.compacted),
        format!("size       {}, in pages of {}", bytes(contents.size), bytes(contents.page_size)),
        format!("etcd       {}", contents.version.as_deref().unwrap_or("not said")),
        format!("sha256     {}", contents.sha256),
        format!("digest     {}", contents.digest),
    ];
    if !contents.prefixes.is_empty() {
        lines.push("biggest prefixes".into());
    }
    for prefix in &contents.prefixes {
        let name = if prefix.prefix.is_empty() { "(no folder)" } else { &prefix.prefix };
        lines.push(format!("{:>12} {:>9} keys  {name}", bytes(prefix.bytes), prefix.keys));
    }
    lines.join("\n")
}

/// In the largest unit that leaves at least one, with one digit behind the point.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let bits = count.checked_ilog2().unwrap_or(0);
    let Some(index) = (bits / 10).checked_sub(1).map(|index| index.min(3) as usize) else {
        return format!("{count} B");
    };
    let unit = 1_u64 << (10 * (index + 1));
    format!("{}.{} {}", count / unit, count % unit * 10 / unit, UNITS[index])
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0, "0 B")]
    #[case(1023, "1023 B")]
    #[case(4096, "4.0 KiB")]
    #[case(20512, "20.0 KiB")]
    #[case(1_610_612_736, "1.5 GiB")]
    #[case(u64::MAX, "16777215.9 TiB")]
    fn sizes(#[case] count: u64, #[case] shown: &str) {
        assert_eq!(bytes(count), shown);
    }
}
