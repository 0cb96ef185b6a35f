//! One entry of the bucket `key`: a revision, and what a key was changed to by it.

const REVISION: usize = 17;
const TOMBSTONE: u8 = b't';

/// One change of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub revision: i64,
    pub change: Change<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change<'a> {
    Put {
        key: &'a [u8],
        value: &'a [u8],
        version: i64,
    },
    Delete {
        key: &'a [u8],
    },
    /// Left by a restore that raises the revision: no key at all.
    Nothing,
}

impl<'a> Entry<'a> {
    pub(super) fn parse(bolt_key: &[u8], bolt_value: &'a [u8]) -> Result<Self, &'static str> {
        let (revision, deleted) = parse_revision(bolt_key).ok_or("its name is no revision")?;
        if bolt_value.is_empty() {
            return Ok(Self { revision, change: Change::Nothing });
        }
        let kv = KeyValue::parse(bolt_value).ok_or("its value is no key and value")?;
        if deleted {
            return Ok(Self { revision, change: Change::Delete { key: kv.key } });
        }
        if kv.mod_revision != revision {
            return Err("it speaks of another revision");
        }
        Ok(Self { revision, change: Change::Put { key: kv.key, value: kv.value, version: kv.version } })
    }
}

/// The main revision, and whether it marks a deletion.
pub(super) fn parse_revision(name: &[u8]) -> Option<(i64, bool)> {
    let deleted = match name.get(REVISION..)? {
        [] => false,
        [TOMBSTONE] => true,
        _ => return None,
    };
    let main = i64::from_be_bytes(name[..8].try_into().ok()?);
    (name[8] == b'_' && main >= 0).then_some((main, deleted))
}

/// Etcd's `mvccpb.KeyValue`, read in place.
#[derive(Default)]
struct KeyValue<'a> {
    key: &'a [u8],
    mod_revision: i64,
    version: i64,
    value: &'a [u8],
}

impl<'a> KeyValue<'a> {
    fn parse(mut bytes: &'a [u8]) -> Option<Self> {
        let mut kv = Self::default();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes)?;
            let (field, wire) = (tag >> 3, tag & 7);
            match (field, wire) {
                (1, 2) => kv.key = delimited(&mut bytes)?,
                (3, 0) => kv.mod_revision = varint(&mut bytes)?.cast_signed(),
                (4, 0) => kv.version = varint(&mut bytes)?.cast_signed(),
                (5, 2) => kv.value = delimited(&mut bytes)?,
                (0 | 1 | 3..=5, _) => return None,
                (_, 0) => drop(varint(&mut bytes)?),
                (_, 1) => bytes = bytes.get(8..)?,
                (_, 2) => drop(delimited(&mut bytes)?),
                (_, 5) => bytes = bytes.get(4..)?,
                _ => return None,
            }
        }
        Some(kv)
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn delimited<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let size = usize::try_from(varint(bytes)?).ok()?;
    let (taken, rest) = bytes.split_at_checked(size)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use etcd::kv;
    use proptest::prelude::*;
    use prost::Message;

    fn name(main: i64, tombstone: bool) -> Vec<u8> {
        let mut name = main.to_be_bytes().to_vec();
        name.push(b'_');
        name.extend(0_i64.to_be_bytes());
        name.extend(tombstone.then_some(b't'));
        name
    }

    proptest! {
        #[test]
        fn reads_what_etcd_writes(
            key in prop::collection::vec(any::<u8>(), 1..40), value in prop::collection::vec(any::<u8>(), 0..200),
            main in 1_i64.., version in 1_i64.., lease in any::<i64>()
        ) {
            let written = kv::KeyValue { key: key.clone(), value: value.clone(), mod_revision: main, create_revision: main, version, lease };
            let bytes = written.encode_to_vec();
            let name = name(main, false);
            let entry = Entry::parse(&name, &bytes).unwrap();
            prop_assert_eq!(entry, Entry { revision: main, change: Change::Put { key: &key, value: &value, version } });
        }

        #[test]
        fn never_panics(name in prop::collection::vec(any::<u8>(), 0..20), value in prop::collection::vec(any::<u8>(), 0..60)) {
            // What is no revision is refused; all else may be anything but a panic.
            prop_assert!(Entry::parse(&name, &value).is_err() || matches!(name.len(), 17 | 18));
        }
    }

    #[test]
    fn knows_deletions_and_raised_revisions() {
        let gone = kv::KeyValue { key: b"k".into(), ..Default::default() }.encode_to_vec();
        let deleted =
            Entry::parse(&name(7, true), &gone).map(|entry| entry.change == Change::Delete { key: b"k" });
        assert_eq!(deleted, Ok(true));
        assert_eq!(Entry::parse(&name(1_000_000_007, false), b"").unwrap().change, Change::Nothing);
        Entry::parse(&name(8, false), &gone).unwrap_err();
        Entry::parse(b"17 bytes of sorts", &gone).unwrap_err();
        Entry::parse(b"short", &gone).unwrap_err();
    }
}
