//! The files that AWS's own tools read: `credentials` and `config`.

use std::collections::BTreeMap;

/// Sections of settings. What is nested under a setting (`s3 =` and indented lines) is named `s3.setting`.
#[derive(Debug, Default)]
pub(super) struct Ini(BTreeMap<String, BTreeMap<String, String>>);

impl Ini {
    /// Lines that are no setting are passed over, as AWS's tools do.
    pub(super) fn parse(text: &str) -> Self {
        let mut sections = BTreeMap::<String, BTreeMap<String, String>>::new();
        let (mut section, mut parent) = (None, String::new());
        for line in text.lines() {
            let trimmed = line.trim();
            if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = trimmed.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
                let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
                section = Some(sections.entry(name).or_default());
                continue;
            }
            let (Some(section), Some((key, value))) = (section.as_mut(), trimmed.split_once('=')) else {
                continue;
            };
            let (key, value) = (key.trim().to_lowercase(), without_comment(value));
            if line.starts_with([' ', '\t']) && !parent.is_empty() {
                section.insert(format!("{parent}.{key}"), value.to_owned());
            } else {
                parent = if value.is_empty() { key.clone() } else { String::new() };
                section.insert(key, value.to_owned());
            }
        }
        Self(sections)
    }

    pub(super) fn section(&self, name: &str) -> Option<&BTreeMap<String, String>> {
        self.0.get(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// A comment after a value needs a space before it: keys may contain `#`.
fn without_comment(value: &str) -> &str {
    let end = [" #", " ;", "\t#", "\t;"].iter().filter_map(|mark| value.find(mark)).min();
    value[..end.unwrap_or(value.len())].trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_tools_of_aws_write() {
        let ini = Ini::parse(
            "# mine\n[default]\nregion = eu-central-1\ns3 =\n  addressing_style = path\n  endpoint_url=http://s3:7070\noutput=json ; for people\n\n[profile  other]\r\nAWS_KEY = a#b=c\r\n",
        );
        let default = ini.section("default").unwrap();
        assert_eq!(default["region"], "eu-central-1");
        assert_eq!(default["s3.addressing_style"], "path");
        assert_eq!(default["s3.endpoint_url"], "http://s3:7070");
        assert_eq!(default["output"], "json");
        assert_eq!(ini.section("profile other").unwrap()["aws_key"], "a#b=c");
        assert_eq!(ini.names().collect::<Vec<_>>(), ["default", "profile other"]);
    }

    #[test]
    fn nothing_is_nothing() {
        assert!(Ini::parse("\nno section = here\n").names().next().is_none());
    }
}
