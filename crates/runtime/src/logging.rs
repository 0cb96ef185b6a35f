//! Log lines in text or JSON, on stderr.

use std::io::IsTerminal;
use std::str::FromStr;

use thiserror::Error;
use tracing::level_filters::LevelFilter;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::filter::{FilterExt, Targets, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Text,
    Json,
}

#[derive(Debug, Error)]
pub enum LoggingError {
    #[error("log format {0:?} is unknown; write text or json")]
    UnknownFormat(String),
    #[error(
        "log level {level:?} is not understood; write error, warn, info, debug or trace, or target=level,…: {source}"
    )]
    BadLevel { level: String, source: tracing_subscriber::filter::ParseError },
    #[error("logging was set up twice")]
    Twice,
}

impl FromStr for Format {
    type Err = LoggingError;

    fn from_str(text: &str) -> Result<Self, LoggingError> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(LoggingError::UnknownFormat(other.to_owned())),
        }
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

/// Sets up logging for the process. `level` is `info`, or `info,kube_runtime=debug`.
pub fn init(format: Format, level: &str) -> Result<(), LoggingError> {
    let subscriber = subscriber(format, level, std::io::stderr().is_terminal(), std::io::stderr)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LoggingError::Twice)
}

fn subscriber<W>(
    format: Format,
    level: &str,
    colours: bool,
    writer: W,
) -> Result<impl Subscriber + Send + Sync, LoggingError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let asked = Targets::from_str(level)
        .map_err(|source| LoggingError::BadLevel { level: level.to_owned(), source })?;
    let filter = asked.and(filter_fn(harmless));
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let lines = match format {
        Format::Text => lines.with_ansi(colours).boxed(),
        Format::Json => lines.json().flatten_event(true).with_current_span(false).boxed(),
    };
    Ok(tracing_subscriber::registry().with(lines.with_filter(filter)))
}

/// Whatever level is asked for: libraries that log the bytes on the wire, tokens and Secrets among them, stay
/// at info, and the client's own error line stays away, for the caller reports the error that it gets.
fn harmless(metadata: &Metadata<'_>) -> bool {
    const WIRE: [&str; 7] =
        ["hyper", "hyper_util", "h2", "rustls", "tungstenite", "tokio_tungstenite", "tower"];
    let target = metadata.target();
    let library = target.split("::").next().unwrap_or(target);
    !target.starts_with("kube_client::client::builder")
        && (*metadata.level() <= LevelFilter::INFO || !WIRE.contains(&library))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: Format, level: &str, log: impl FnOnce()) -> String {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let subscriber = subscriber(format, level, false, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, log);
        String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn json_lines_are_flat_objects_with_their_spans() {
        let line = logged(Format::Json, "info", || {
            let _cluster = tracing::info_span!("reconcile", cluster = "a/b").entered();
            tracing::info!(member = "m", "scaled");
        });
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["message"], "scaled");
        assert_eq!(line["member"], "m");
        assert_eq!(line["level"], "INFO");
        assert_eq!(line["spans"][0]["cluster"], "a/b");
    }

    #[test]
    fn text_lines_have_level_and_fields_and_no_colours() {
        let line = logged(Format::Text, "info,quiet=off", || {
            tracing::info!(cluster = "a/b", "scaled");
            tracing::debug!("unseen");
            tracing::error!(target: "quiet", "unseen");
        });
        assert!(line.contains("INFO") && line.contains("scaled cluster=\"a/b\""), "{line}");
        assert!(!line.contains("unseen") && !line.contains('\u{1b}'), "{line}");
    }

    #[test]
    fn the_wire_is_never_logged_whatever_is_asked_for() {
        let lines = logged(Format::Text, "trace,hyper::proto=trace,rustls=trace", || {
            tracing::trace!(target: "hyper::proto::h1::io", "authorization: Bearer secret");
            tracing::debug!(target: "rustls::client", "secret");
            tracing::error!(target: "kube_client::client::builder", "secret");
            tracing::trace!(target: "etcd_operator", "shown");
            tracing::warn!(target: "rustls::client", "shown too");
        });
        assert!(lines.contains("shown") && lines.contains("shown too"), "{lines}");
        assert!(!lines.contains("secret"), "{lines}");
    }

    #[test]
    fn mistakes_are_answered_with_what_to_write() {
        let error = "yaml".parse::<Format>().unwrap_err().to_string();
        assert_eq!(error, "log format \"yaml\" is unknown; write text or json");
        let error = subscriber(Format::Text, "op=loud", false, std::io::sink).err().unwrap().to_string();
        assert!(error.contains("\"op=loud\"") && error.contains("write error, warn, info"), "{error}");
    }
}
